"""The local engine: chunks of runs, one after the other, in this process. No server, no port."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from dst_lab.configs import Config
from dst_lab.engines.calibrate import estimate_seconds
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.loop import Fleet, Prune, Report
from dst_lab.fleet.task import Task
from dst_lab.store import Store, run_id
from dst_lab.tasks import TASKS

SAFETY = 1.1
"""A chunk is begun only where this many times its estimated time is left."""


@dataclass(frozen=True)
class Outcome:
    """What became of a plan."""

    wanted: int
    already: int
    trained: int
    diverged: int
    left: int
    """Not trained because the time was up."""


def train(
    configs: Iterable[Config],
    store: Store,
    *,
    device: torch.device,
    checkpoints: Checkpoints | None = None,
    source: str | None = None,
    report: Report | None = None,
    stop: Callable[[], bool] | None = None,
    most: int | None = None,
    seconds_left: Callable[[], float] | None = None,
    prune: Prune | None = None,
) -> Outcome:
    """Train what the store does not hold yet, chunk by chunk; each chunk is recorded whole when it ends.

    Args:
        configs: the plan.
        store: open for writing; this process is its only writer.
        device: cpu or cuda.
        checkpoints: where the chunk in progress is saved; a killed plan goes on from there.
        source: where the data lie (a folder or a prepared file); None looks in the usual places.
        report: called after every step.
        stop: asked after every step; True saves a checkpoint and raises TrainingStoppedError.
        most: at most this many runs a chunk, whatever memory allows.
        seconds_left: how much time there is; chunks are sized to end inside it, and none is begun that would not.
        prune: asked at every evaluation which runs of a chunk to give up; they are recorded as stopped.
    """
    wanted = {run_id(config.to_dict()): config for config in configs}
    finished = store.finished()
    pending = {run: config for run, config in wanted.items() if run not in finished}
    if checkpoints:
        checkpoints.tidy(finished)
    begun = checkpoints.begun(pending) if checkpoints else []
    trained = diverged = 0
    for chunk in begun + _by_fleet(pending):
        queue = [[run for run in chunk if run in pending]]
        task: Task | None = None
        while queue and queue[0]:
            runs = queue.pop(0)
            members = [pending[run] for run in runs]
            task = task or TASKS[members[0].task](members[0], source, device)
            # What was begun goes on as it is, even where less fits by now: in pieces it would begin anew.
            goes_on = runs in begun
            fit = min(len(runs) if goes_on else runs_that_fit(task, device), most or len(runs), len(runs))
            if seconds_left and not goes_on:
                fit = _inside(task, members[:fit], seconds_left())
            if fit == 0:
                break
            if fit < len(runs):
                queue.insert(0, runs[fit:])
                runs, members = runs[:fit], members[:fit]
            checkpoint = checkpoints.of(runs) if checkpoints else None
            try:
                records = Fleet(task, members, checkpoint).train(report, stop, prune)
            except torch.cuda.OutOfMemoryError:
                if len(runs) == 1:
                    raise
                torch.cuda.empty_cache()
                queue = [runs[: len(runs) // 2], runs[len(runs) // 2 :], *queue]
                continue
            store.put(records)
            if checkpoint:
                checkpoint.remove()
            trained += len(records)
            diverged += sum(record.status == "diverged" for record in records)
            for run in runs:
                del pending[run]
    if checkpoints:
        checkpoints.tidy(store.finished())
    return Outcome(len(wanted), len(wanted) - trained - len(pending), trained, diverged, len(pending))


def check(configs: Iterable[Config], *, device: torch.device, source: str | None = None) -> None:
    """Raise now what would keep these runs from being trained: data that are missing, sizes that do not fit."""
    by_id = {run_id(config.to_dict()): config for config in configs}
    for first, *_ in _by_fleet(by_id):
        config = by_id[first]
        task = TASKS[config.task](config, source, device)
        config.batches_of(task.images)
        runs_that_fit(task, device)


def _inside(task: Task, configs: Sequence[Config], seconds: float) -> int:
    """How many of these runs can be trained together in that time; 0 where not even one can."""
    runs = len(configs)
    for _ in range(4):
        needed = SAFETY * estimate_seconds(task, configs[:runs])
        if needed <= seconds:
            return runs
        # A smaller fleet takes more than its share of the time, so the estimate is made anew.
        runs = min(runs - 1, int(runs * seconds / needed))
        if runs < 1:
            return 0
    return 0


def _by_fleet(pending: dict[str, Config]) -> list[list[str]]:
    """The runs that can be trained as one program, together, in the plan's order."""
    groups: dict[str, list[str]] = {}
    for run, config in pending.items():
        groups.setdefault(f"{config.task} {config.fleet_key()}", []).append(run)
    return list(groups.values())
