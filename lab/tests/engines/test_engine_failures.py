"""A run whose code fails: found by halving, recorded with its reason, tried again; its neighbours do not notice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dst_lab.data import DataError
from dst_lab.engines import engine
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.fleet.loop import Fleet
from dst_lab.store import Store, StoreError
from dst_lab.tasks import TASKS
from dst_lab.train import Outcome
from dst_lab.train import train as train_runs

CPU = torch.device("cpu")


@pytest.fixture
def plan(small: Callable[..., Any]) -> list[Any]:
    """Eight runs of one fleet, 20 steps each."""
    return [small("stochastic-binary", seed=seed, epochs=1) for seed in range(8)]


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Outcome]:
    def run(configs: Any, file: str = "a.sqlite", **options: Any) -> Outcome:
        with Store.open(tmp_path / file, write=True) as store:
            return train_runs(configs, LocalEngine(CPU), store, Job(checkpoint_seconds=0.0, **options))

    return run


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> tuple[set[int], list[list[int]]]:
    """(seeds whose code fails after ten steps, the seeds of every fleet that began): change the first as you like."""
    seeds: set[int] = set()
    fleets: list[list[int]] = []
    honest_train, honest_prepare = Fleet.train, Fleet._prepare

    def train(fleet: Fleet, *rest: Any) -> Any:
        fleets.append([config.seed for config in fleet.members])
        assert fleet.step == 0, "a half went on from the checkpoint of the chunk that failed"
        return honest_train(fleet, *rest)

    def prepare(fleet: Fleet) -> None:
        if fleet.step == 10 and seeds & {config.seed for config in fleet.configs}:
            raise ZeroDivisionError("no good")
        honest_prepare(fleet)

    monkeypatch.setattr(Fleet, "train", train)
    monkeypatch.setattr(Fleet, "_prepare", prepare)
    return seeds, fleets


def test_the_chunk_is_halved_until_the_failing_run_stands_alone(plan, train, rows, tmp_path, broken) -> None:
    seeds, fleets = broken
    assert train(plan, "whole.sqlite").failed == {}
    whole = rows(tmp_path / "whole.sqlite")
    seeds.add(2)
    fleets.clear()
    outcome = train(plan)
    assert fleets == [list(range(8)), [0, 1, 2, 3], [0, 1], [2, 3], [2], [3], [4, 5, 6, 7]]
    bad = plan[2].run_id
    name = f"stochastic-binary decoupled tau_f=0.5 tau_b=0.7 lr=0.003 seed=2 ({bad})"
    failed = {name: outcome.failed[name]}
    assert failed[name].startswith("ZeroDivisionError: no good (test_engine_failures.py:")
    assert ", from loop.py:" in failed[name], "and by which way it came there"
    assert outcome == Outcome(wanted=8, already=0, trained=7, diverged=0, left=0, failed=failed)
    found = rows(tmp_path / "a.sqlite")
    assert {run: row for run, row in found.items() if run != bad} == {run: whole[run] for run in whole if run != bad}
    assert found[bad]["status"] == "failed"
    with Store.open(tmp_path / "a.sqlite") as store:
        (run,) = store.runs(status="failed")
        assert run.detail["reason"] == "ZeroDivisionError: no good"
        assert run.detail["step"] == 10
        assert run.detail["where"].startswith("test_engine_failures.py:")
        assert store.history(bad) == {}
        assert store.provenance(bad)["fleet"] == 1
    assert not (tmp_path / "a.sqlite.checkpoints").exists()


def test_again_only_the_failed_run_is_tried(plan, train, rows, tmp_path, broken) -> None:
    seeds, fleets = broken
    train(plan, "whole.sqlite")
    seeds.update((0, 7))
    assert train(plan).trained == 6
    fleets.clear()
    again = train(plan)
    assert (again.already, again.trained, len(again.failed)) == (6, 0, 2)
    assert fleets == [[0, 7], [0], [7]]
    seeds.clear()
    fixed = train(plan)
    assert fixed == Outcome(wanted=8, already=6, trained=2, diverged=0, left=0)
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")
    assert train(plan).already == 8


def test_killed_while_it_halves_it_does_not_resume_into_the_failure(plan, train, tmp_path, broken, monkeypatch) -> None:
    """The failed chunk's checkpoint goes before its halves begin, so that there is nothing to go back to."""
    seeds, fleets = broken
    seeds.add(5)
    first = Fleet.train

    class KilledError(BaseException):
        pass

    def die(fleet: Fleet, *rest: Any) -> Any:
        if len(fleets) == 1:
            raise KilledError
        return first(fleet, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "train", die)
        with pytest.raises(KilledError):
            train(plan)
    assert list(tmp_path.glob("*.checkpoints/*.npz")) == []
    # `broken` asserts that no fleet begins at a later step than 0.
    (failed,) = train(plan).failed.values()
    assert failed.startswith("ZeroDivisionError: no good (test_engine_failures.py:")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("build", DataError("no images")),
        ("build", ValueError("bad sizes")),
        ("build", OSError("no such disk")),
        ("train", StoreError("full")),
        ("train", MemoryError("full")),
        ("train", KeyboardInterrupt("Ctrl-C")),
        ("progress", OSError("no room")),
        ("stop", OSError("no room")),
        ("device", RuntimeError("an illegal address")),
    ],
)
def test_what_is_no_failure_of_a_run_ends_everything(where, error, plan, train, tmp_path, monkeypatch) -> None:
    """A task that cannot be built, a full disk or memory, those who watch, a device that cannot be used any more."""

    def refuse(*given: Any) -> None:
        if where != "progress" or given[0].fleet:
            raise error

    if where == "build":
        monkeypatch.setattr(TASKS["stochastic-binary"], "__init__", refuse)
    elif where in ("train", "device"):
        monkeypatch.setattr(Fleet, "train", refuse)
        monkeypatch.setattr(engine, "_works", lambda device: where != "device")
    with pytest.raises(type(error), match=str(error)):
        train(plan, **({where: refuse} if where in ("progress", "stop") else {}))
    with Store.open(tmp_path / "a.sqlite") as store:
        assert store.runs() == []


def test_a_run_whose_code_fails_after_it_diverged_is_diverged(plan, small, train, tmp_path, broken) -> None:
    """Code of one's own may refuse what is not finite: the run is not tried again, and its neighbours finish."""
    seeds, _ = broken
    seeds.add(99)
    loud = small("stochastic-binary", seed=99, epochs=1, lr=1e38)
    outcome = train([*plan[:3], loud])
    assert outcome == Outcome(wanted=4, already=0, trained=4, diverged=1, left=0)
    with Store.open(tmp_path / "a.sqlite") as store:
        (run,) = store.runs(status="diverged")
    assert run.seed == 99
    assert run.detail["reason"] == "the loss is not finite"
    assert run.detail["step"] < 10
    assert train([*plan[:3], loud]).already == 4


def test_the_command_lists_failures_finishes_the_round_and_ends_with_1(cli, rows, broken) -> None:
    seeds, _ = broken
    words = ("sweep", "stochastic-binary", "--grid", "tau_f=0,1", "epochs=1", "--seeds", 2, "--threads", 1)
    seeds.add(1)
    ended = cli(*words)
    assert ended.code == 1
    lines = ended.err.splitlines()
    assert "4 runs: 2 trained, 0 already there, 2 failed. Store: dst.sqlite" in lines
    listed = [line for line in lines if line.startswith("dst: failed: stochastic-binary decoupled tau_f=")]
    assert [line.split("tau_f=")[1][:3] for line in listed] == ["0.0", "1.0"]
    assert all("): ZeroDivisionError: no good (test_engine_failures.py:" in line for line in listed)
    assert lines[-1] == "dst: 2 runs of this round are left; the same command goes on"
    again = cli(*words)
    assert again.code == 1
    assert "4 runs: 0 trained, 2 already there, 2 failed. Store: dst.sqlite" in again.err
    seeds.clear()
    assert cli(*words).code == 0
    assert {row["status"] for row in rows(Path("dst.sqlite")).values()} == {"done"}
