"""The local engine: in whatever chunks a plan is trained, stopped or taken up again, the store ends the same."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from dst_lab.engines import engine
from dst_lab.engines.engine import Job, Progress, Result
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.checkpoint import Checkpoint, Checkpoints
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.store import Store
from dst_lab.tasks import TASKS
from dst_lab.train import Outcome
from dst_lab.train import train as train_runs

CPU = torch.device("cpu")


class Steps:
    """Counts the steps of each fleet; `stop` after so many of them in all."""

    def __init__(self, most: int | None = None) -> None:
        self.taken, self.most, self.fleets = 0, most, dict[int, Fleet]()

    def __call__(self, progress: Progress) -> None:
        if progress.fleet:
            self.taken += 1
            self.fleets[id(progress.fleet)] = progress.fleet

    @property
    def sizes(self) -> list[int]:
        return [len(fleet.members) for fleet in self.fleets.values()]

    def stop(self) -> bool:
        return self.taken == self.most


@dataclass(frozen=True)
class Timed(Job):
    """The time that is left, by a clock of the test's own."""

    clock: Callable[[], float] = lambda: 0.0

    def seconds_left(self) -> float:
        return self.clock()


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., tuple[Outcome | None, Steps]]:
    """Train a plan into `file`, with checkpoints beside it; None as the outcome of one that was stopped."""

    def run(configs: Any, file: str = "a.sqlite", after: int | None = None, **options: Any) -> Any:
        steps, make = Steps(after), Timed if "clock" in options else Job
        with Store.open(tmp_path / file, write=True) as store:
            try:
                outcome = train_runs(configs, LocalEngine(CPU), store, make(progress=steps, stop=steps.stop, **options))
            except TrainingStoppedError:
                return None, steps
        return outcome, steps

    return run


@pytest.fixture
def plan(small: Callable[..., Any]) -> list[Any]:
    """Five runs of one fleet, 20 steps each."""
    return [small("stochastic-binary", seed=seed, epochs=1, lr=(1 + seed % 2) * 1e-3) for seed in range(5)]


@pytest.fixture
def mixed(small: Callable[..., Any]) -> list[Any]:
    """Every task, two estimators each, in no order."""
    choices = [Choice.make("softmax_ste", tau=0.7), Choice.make("decoupled", tau_f="1:0.5:linear", tau_b=1)]
    configs = [
        small(name, seed=seed, estimator=choice)
        for seed in (0, 1)
        for choice in choices
        for name in ("logic-gates", "stochastic-binary", "categorical-autoencoder")
    ]
    return [*configs, small("stochastic-binary", seed=0, hidden=(8,)), small("stochastic-binary", seed=9, lr=1e38)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("most", [2, 100])
def test_chunks_of_any_size_give_the_same_rows(most, plan, train, rows, tmp_path) -> None:
    whole, steps = train(plan, "whole.sqlite")
    assert whole == Outcome(wanted=5, already=0, trained=5, diverged=0, left=0)
    assert steps.sizes == [5]
    pieces, steps = train(plan, "pieces.sqlite", fleet=most)
    assert pieces == whole
    assert steps.sizes == [most] * (5 // most) + [5 % most] * (5 % most > 0)
    assert rows(tmp_path / "pieces.sqlite") == rows(tmp_path / "whole.sqlite")
    assert len(rows(tmp_path / "whole.sqlite")) == 5


def test_chunks_that_share_a_machine_share_its_memory(plan, monkeypatch) -> None:
    task = engine.build(plan[0], None, CPU)
    room = 4.5 * engine.bytes_per_run(task) / 0.7
    monkeypatch.setattr(engine, "free_bytes", lambda device: int(room))
    for sharers, fit in ((1, 4), (2, 2), (4, 1), (40, 1)):
        result = engine.train_chunk(task, plan, Job(), sharers)
        assert len(result.records) == fit
        assert result.again == [plan[fit:]]


def test_a_plan_of_many_tasks_and_estimators(mixed, train, rows, tmp_path) -> None:
    outcome, steps = train(mixed)
    assert outcome == Outcome(wanted=14, already=0, trained=14, diverged=1, left=0)
    assert sorted(steps.sizes) == [1, 2, 2, 2, 2, 2, 3]
    together = rows(tmp_path / "a.sqlite")
    assert together.keys() == {config.run_id for config in mixed}
    for config in mixed:
        train([config], "alone.sqlite")
    assert rows(tmp_path / "alone.sqlite") == together


@pytest.mark.parametrize("after", [1, 13, 32])
def test_stopped_after_any_step_it_ends_the_same_and_leaves_nothing(after, mixed, train, rows, tmp_path) -> None:
    _, whole = train(mixed, "whole.sqlite")
    stopped, steps = train(mixed, after=after)
    assert stopped is None
    assert steps.taken == after
    assert len(names(tmp_path / "a.sqlite.checkpoints")) == 1
    outcome, rest = train(mixed)
    assert outcome is not None
    # No step is taken twice.
    assert steps.taken + rest.taken == whole.taken
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")
    assert names(tmp_path) == ["a.sqlite", "whole.sqlite"]


def test_what_is_no_longer_wanted_whole_is_not_used_and_goes_in_the_end(plan, train, rows, tmp_path) -> None:
    train(plan, "whole.sqlite")
    train(plan, after=15)
    _, steps = train(plan[1:3])
    assert steps.taken == 20
    assert names(tmp_path) == ["a.sqlite", "whole.sqlite"]
    train(plan)
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")


def test_killed_between_recording_and_removing_it_leaves_nothing_for_good(plan, train, tmp_path, monkeypatch) -> None:
    class KilledError(BaseException):
        pass

    def die(_: Checkpoint) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", die)
        with pytest.raises(KilledError):
            train(plan, checkpoint_seconds=0.0)
    (left,) = (tmp_path / "a.sqlite.checkpoints").iterdir()
    # And a process killed while it wrote one, and a file that the disk spoilt.
    left.with_suffix(".77.part").write_bytes(b"half")
    (left.parent / "0123456789abcdef.npz").write_bytes(b"spoilt")
    outcome, steps = train(plan)
    assert outcome == Outcome(wanted=5, already=5, trained=0, diverged=0, left=0)
    assert steps.taken == 0
    assert names(tmp_path) == ["a.sqlite"]


def test_a_checkpoint_of_another_plan_stays_for_it(plan, mixed, train, tmp_path) -> None:
    train(plan, after=15)
    (kept,) = (tmp_path / "a.sqlite.checkpoints").iterdir()
    train([config for config in mixed if config.task == "logic-gates"])
    assert list((tmp_path / "a.sqlite.checkpoints").iterdir()) == [kept]
    assert train(plan)[1].taken == 5


def test_runs_that_an_earlier_version_put_together_start_again(small, train, rows, tmp_path) -> None:
    """One fleet once had rules of several constants; trained as one now, all would have those of the first."""
    courses = ("self:ceiling=0.3", "self:ceiling=0.4")
    choices = [Choice.make("decoupled", tau_f=course, tau_b=0.5) for course in courses]
    plan = [small("stochastic-binary", epochs=1, estimator=choice) for choice in choices]
    train(plan, "whole.sqlite")
    mixed = Checkpoints(tmp_path / "a.sqlite.checkpoints").of([config.run_id for config in plan])
    mixed.save(Fleet(TASKS["stochastic-binary"](plan[0], None, CPU), plan))
    train(plan)
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")
    assert names(tmp_path) == ["a.sqlite", "whole.sqlite"]


def test_out_of_memory_on_the_device_halves_the_chunk(plan, train, rows, tmp_path, monkeypatch) -> None:
    train(plan, "whole.sqlite")
    honest = Fleet.train

    def small_device(fleet: Fleet, *rest: Any) -> Any:
        if len(fleet.members) > 2:
            raise torch.cuda.OutOfMemoryError
        return honest(fleet, *rest)

    monkeypatch.setattr(Fleet, "train", small_device)
    _, steps = train(plan)
    assert steps.sizes == [2, 1, 2]
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")


def test_time_that_is_up_leaves_runs(plan) -> None:
    """The first chunk is trained by a step; no other is started."""
    job = Timed(deadline=0.0, clock=lambda: 0.0)
    assert list(LocalEngine(CPU).train([], [plan[:2], plan[2:]], job)) == [Result([], [])]


def test_slices_of_a_chunk_that_fits_none_of_them_add_up(plan, train, rows, tmp_path) -> None:
    """What was begun goes on in every slice, is saved when its time is up, and no step is taken twice."""
    train(plan, "whole.sqlite")
    train(plan, after=3)
    taken = []
    for _ in range(3):
        left = iter([1.0] * 7 + [0.0] * 1000)
        outcome, steps = train(plan, deadline=0.0, clock=lambda left=left: next(left))
        taken.append((steps.taken, outcome.trained, outcome.left))
    assert taken == [(7, 0, 5), (7, 0, 5), (3, 5, 0)]
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")
    assert names(tmp_path) == ["a.sqlite", "whole.sqlite"]


def test_a_damaged_checkpoint_is_named(plan, train, rows, tmp_path) -> None:
    train(plan, "whole.sqlite")
    train(plan, after=5)
    (saved,) = (tmp_path / "a.sqlite.checkpoints").iterdir()
    raw = bytearray(saved.read_bytes())
    raw[len(raw) // 2] ^= 255  # in an array: what it says of itself is whole
    saved.write_bytes(raw)
    told: list[str] = []
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        job = Job(progress=lambda one: one.message and told.append(one.message))
        outcome = train_runs(plan, LocalEngine(CPU), store, job)
    assert outcome.trained == 5
    (sentence,) = told
    assert sentence.startswith(f"the checkpoint {saved} cannot be continued (it is damaged: ")
    assert sentence.endswith("): its runs start again")
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "whole.sqlite")
    saved.parent.mkdir()
    saved.write_bytes(b"as a worker elsewhere left it")
    Checkpoints(tmp_path / "a.sqlite.checkpoints", tell=told.append).tidy([])
    assert told[1] == f"the checkpoint {saved} is damaged: its runs start again"
    assert not saved.parent.exists()
