"""A plan followed on an engine into a store, with an engine of the test's own."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.engines.engine import Job, Result, build
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet import recording
from dst_lab.fleet.loop import TrainingStoppedError
from dst_lab.fleet.task import Task
from dst_lab.plans import Grid, Plan, Recipes, Sequential
from dst_lab.runs import Config
from dst_lab.store import Record, Series, Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from dst_lab.train import follow, reproduce, train

BASE = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=1.0, tau_b=1.0))


class Pretend:
    """Records a loss that is lowest at tau_f = 0.5, tau_b = 2; fails where it is told to."""

    def __init__(self, failing: Sequence[float] = ()) -> None:
        self.rounds: list[int] = []
        self.jobs: list[Job] = []
        self.failing = failing

    def check(self, configs: Sequence[Config]) -> None:
        if not configs:
            raise ValueError("nothing to check")

    def train(self, started: Sequence[list[Config]], fresh: Sequence[list[Config]], job: Job) -> Iterator[Result]:
        configs = [config for chunk in (*started, *fresh) for config in chunk]
        self.rounds.append(len(configs))
        self.jobs.append(job)
        for config in configs:
            taus = config.estimator.to_dict()
            loss = (taus["tau_f"] - 0.5) ** 2 + (taus["tau_b"] - 2.0) ** 2
            status, history, detail = "done", {"validation_loss": Series(np.array([1]), np.array([loss]))}, {}
            if taus["tau_f"] in self.failing:
                status, history, detail = "failed", {}, {"reason": "asked to", "where": "here", "step": 1}
            yield Result([Record(config=config.to_dict(), status=status, history=history, detail=detail)], [])


def search(*taus: float) -> Sequential:
    return Sequential(BASE, (("tau_f", taus), ("tau_b", (0.5, 1.0, 2.0, 4.0))), (0, 1))


def test_a_plan_is_followed_round_after_round_and_again_trains_nothing(tmp_path: Path) -> None:
    engine = Pretend()
    path, job = tmp_path / "runs.sqlite", Job(fleet=7, networks=True)
    followed = follow(search(0.0, 0.5, 1.0), engine, path, job)
    assert engine.rounds == [6, 6], "tau_f at both seeds; then tau_b, of which one was there"
    assert (followed.done, followed.left, followed.wanted) == (True, 0, 12)
    assert followed.notes == ["chosen for stochastic-binary decoupled: tau_f=0.5, tau_b=2.0, 0"]
    assert engine.jobs[0].fleet == 7
    assert engine.jobs[0].networks is True
    assert engine.jobs[0].checkpoints.folder == tmp_path / "runs.sqlite.checkpoints"
    again = follow(search(0.0, 0.5, 1.0), engine, path, job)
    assert (again.done, again.rounds) == (True, [])
    assert engine.rounds == [6, 6]


def test_a_run_that_fails_ends_the_plan_and_is_left(tmp_path: Path) -> None:
    engine = Pretend(failing=[1.0])
    followed = follow(search(0.0, 0.5, 1.0), engine, tmp_path / "runs.sqlite")
    assert engine.rounds == [6]
    assert not followed.done
    assert followed.left == 2
    assert followed.notes == []


def test_when_the_time_is_up_the_round_is_the_last(tmp_path: Path) -> None:
    engine = Pretend()
    followed = follow(search(0.0, 0.5), engine, tmp_path / "runs.sqlite", Job(deadline=time.monotonic() - 1))
    assert engine.rounds == []
    assert not followed.done


def test_runs_by_another_version_of_a_tasks_module_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    job = Job(progress=lambda progress: progress.message and said.append(progress.message))
    monkeypatch.setattr(recording, "source_of", lambda kind: "new" * issubclass(kind, Task))
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for seed, origin in enumerate(({"task_source": "old"}, {"task_source": "new"}, {"commit": "of old"})):
            history = {"validation_loss": Series(np.array([1]), np.array([1.0]))}
            config = replace(BASE, seed=seed).to_dict()
            store.put([Record(config=config, status="done", history=history, provenance=origin)])
    plan = Sequential(BASE, (("tau_f", (0.5, 1.0)), ("tau_b", (0.5, 1.0))), (0, 1))
    follow(plan, Pretend(), tmp_path / "runs.sqlite", job)
    assert len(said) == 1, "once, though there are several rounds"
    assert said[0].startswith("1 of the 3 recorded runs of stochastic-binary were trained by another version")


def test_what_cannot_be_trained_leaves_no_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to check"):
        train([], Pretend(), tmp_path / "runs.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_recipes_are_reproduced_in_their_order_without_the_optional(tmp_path: Path) -> None:
    def grid(*taus: float) -> Any:
        def make(scale: str) -> Plan:
            return Grid(BASE, (("tau_f", taus),), (0,))

        return make

    recipes = Recipes({"a": grid(0.5), "b": grid(0.5, 1.0), "c": grid(2.0)}, optional=("b",))
    begun: list[str] = []
    path = tmp_path / "runs.sqlite"
    found = dict(reproduce(recipes, "quick", Pretend(), path, begin=begun.append))
    assert begun == list(found) == ["a", "c"]
    assert [one.wanted for one in found.values()] == [1, 1]
    late = Job(deadline=time.monotonic() - 1)
    assert dict(reproduce(recipes, "quick", Pretend(), path, late)) == {}


def test_runs_that_were_recorded_without_their_network_are_told_of(tmp_path: Path) -> None:
    grid = Grid(BASE, (("tau_f", (0.0, 0.5)),), (0,))
    assert follow(grid, Pretend(), tmp_path / "runs.sqlite").without_network == ()
    with Store.open(tmp_path / "runs.sqlite") as store:
        recorded = tuple(sorted(run.id for run in store.runs()))
    followed = follow(grid, Pretend(), tmp_path / "runs.sqlite", Job(networks=True))
    assert (followed.done, followed.rounds) == (True, [])
    assert followed.without_network == recorded


class Slow(LocalEngine):
    """Takes longer to prepare than there is time."""

    def check(self, configs: Sequence[Config]) -> None:
        time.sleep(0.02)
        super().check(configs)


def _slow_to_build(*given: Any) -> Any:
    time.sleep(0.02)
    return build(*given)


@pytest.mark.parametrize("together", [1, 3], ids=["alone", "begun as a chunk of three"])
def test_a_time_shorter_than_the_preparation_still_advances_by_a_step(
    together: int, tmp_path: Path, monkeypatch, rows
) -> None:
    """Every call saves another step of what was begun, and as many calls as there are steps end it."""
    grid = Grid(replace(BASE, hidden=(8,), epochs=1), (("tau_f", (0.5,)),), tuple(range(together)))
    engine = Slow(torch.device("cpu"), threads=1)
    follow(grid, engine, tmp_path / "whole.sqlite")
    path = tmp_path / "parts.sqlite"
    if together > 1:
        asked = iter([False])
        with pytest.raises(TrainingStoppedError):
            follow(grid, engine, path, Job(stop=lambda: next(asked, True)))
    monkeypatch.setattr("dst_lab.engines.local.build", _slow_to_build)
    folder, seen = tmp_path / "parts.sqlite.checkpoints", set()
    for call in range(100):
        followed = follow(grid, engine, path, Job(deadline=time.monotonic() + 0.01))
        if followed.done or followed.rounds[-1].trained:
            break
        (saved,) = folder.glob("*.npz")
        seen.add(saved.read_bytes())
        assert len(seen) == call + 1, "it stands still"
    assert call > 3
    assert rows(tmp_path / "parts.sqlite") == rows(tmp_path / "whole.sqlite")


def test_recipes_that_are_done_do_not_use_up_the_time_of_the_next(tmp_path: Path, monkeypatch) -> None:
    def grid(epochs: int) -> Any:
        return lambda _: Grid(replace(BASE, hidden=(8,), epochs=epochs), (("tau_f", (0.5,)),), (0,))

    engine, path = LocalEngine(torch.device("cpu"), threads=1), tmp_path / "runs.sqlite"
    follow(grid(1)(""), engine, path)
    recipes = Recipes({"done": grid(1), "next": grid(2_000), "last": grid(3)})
    job = Job(deadline=time.monotonic() + 0.01)
    found = dict(reproduce(recipes, "quick", engine, path, job, begin=lambda _: time.sleep(0.02)))
    assert list(found) == ["done", "next"]
    assert len(list((tmp_path / "runs.sqlite.checkpoints").glob("*.npz"))) == 1
