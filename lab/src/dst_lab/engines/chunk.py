"""What every engine does with a chunk of runs, on whichever machine: as many as fit, halved where one of them fails."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dst_lab.engines.calibrate import estimate_seconds
from dst_lab.engines.engine import Job, Progress, Result
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.contract import ContractError, ShapeError, check_built
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.fleet.optimiser import UpdateRule
from dst_lab.fleet.saved.provenance import provenance
from dst_lab.fleet.saved.recording import records_of
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.store import Record, StoreError, run_id
from dst_lab.tasks import TASKS

SAFETY = 1.1
"""A chunk is started only where this many times its estimated time is left."""
AROUND = 4
"""Calls that are named of a run that failed."""


class _WatcherError(Exception):
    """What was raised by those who watch a training (the progress display, who asks to stop), not by a run."""


def build(config: Config, source: str | None, device: torch.device) -> Task:
    """The task of a fleet. What it raises (no data, sizes that do not fit) holds for every run of the fleet."""
    task = TASKS[config.task](config, source, device)
    check_built(task)
    UpdateRule.of(config, task.images)
    return task


def train_chunk(task: Task, configs: Sequence[Config], job: Job, sharers: int = 1) -> Result:
    """Train the first of these runs, as many as fit, as one fleet; `sharers` are the chunks that are trained in the
    same memory.

    Ordinary exceptions are taken for those of a single run: the chunk is halved until it stands alone, and then
    recorded as failed, or as diverged where its loss was not finite before. Halves start again, and the checkpoint
    goes: it would lead into the same failure again.
    """
    fit = _size(task, configs, job, sharers)
    members, rest = list(configs[:fit]), list(configs[fit:])
    if not members:
        return Result([], [])
    checkpoint = job.checkpoints.of(ids(members)) if job.checkpoints else None
    late = False

    def ended() -> bool:
        nonlocal late
        if job.stop and job.stop():
            return True
        late = job.seconds_left() <= 0
        return late

    fleet: Fleet | None = None
    try:
        fleet = Fleet(task, members, checkpoint)
        if fleet.stopped and not job.prune and checkpoint:
            checkpoint.remove()  # of a search that gave runs up: here they are wanted whole
            fleet = Fleet(task, members, checkpoint)
        records = fleet.train(_watched(_reporting(job.progress)), _watched(ended), job.prune, job.networks)
        return Result(records, [rest] if rest else [])
    except _WatcherError as error:
        raise error.args[0] from None
    except TrainingStoppedError:
        if not late:
            raise
        return Result([], [])
    except torch.cuda.OutOfMemoryError:
        if len(members) == 1:
            raise
        failure = None
    except (ContractError, MemoryError, StoreError) as error:
        if checkpoint and isinstance(error, ShapeError):
            checkpoint.remove()  # where the task was changed since, the next command starts again
        raise  # of all runs, and of none in particular
    except Exception as error:
        if not _works(task.device):
            raise
        failure = _diverged(fleet) or failed(members[0], *_reason(error), task.device, fleet)
    # Outside the handlers, where nothing holds on to the fleet's memory any more.
    del fleet
    if task.device.type == "cuda":
        torch.cuda.empty_cache()
    if checkpoint:
        checkpoint.remove()
    again = halves(members, together=job.prune is not None) + ([rest] if rest else [])
    return Result([failure] if failure and len(members) == 1 else [], again)


def failed(config: Config, reason: str, where: str, device: torch.device, fleet: Fleet | None = None) -> Record:
    """The record of a run whose code failed."""
    detail = {"reason": reason, "where": where, "step": fleet.step if fleet else 0}
    origin = provenance(device, fleet.seconds if fleet else 0.0, 1, fleet.path if fleet else {})
    return Record(config=config.to_dict(), status="failed", detail=detail, provenance=origin)


def _diverged(fleet: Fleet | None) -> Record | None:
    """The record of a lone run whose loss was not finite before its code failed: code may refuse such numbers."""
    if fleet is None or len(fleet.members) > 1 or not fleet.bad_step.any():
        return None
    (record,) = records_of(fleet, {}, {}, provenance(fleet.device, fleet.seconds, 1, fleet.path))
    return record


def halves(configs: Sequence[Config], together: bool = False) -> list[list[Config]]:
    """Two chunks of one; none of a single run. `together`: no setting is cut in two while there is another."""
    middle = len(configs) // 2
    if together:
        middle = _whole(configs, middle) or _whole(configs, len(configs) - 1) or middle
    return [list(configs[:middle]), list(configs[middle:])] if middle else []


def ids(configs: Sequence[Config]) -> list[str]:
    return [run_id(config.to_dict()) for config in configs]


def by_fleet(configs: Sequence[Config]) -> list[list[Config]]:
    """The runs that can be trained as one program, together, in the plan's order."""
    groups: dict[str, list[Config]] = {}
    for config in configs:
        groups.setdefault(fleet_of(config), []).append(config)
    return list(groups.values())


def fleet_of(config: Config) -> str:
    """What the runs of a fleet have in common, as text."""
    return f"{config.task} {config.fleet_key()}"


def _size(task: Task, configs: Sequence[Config], job: Job, sharers: int) -> int:
    """How many of these runs to train together; 0 where not even one can be trained in the time."""
    if not job.longer and job.seconds_left() <= 0:
        return 0
    runs, most = ids(configs), job.fleet or len(configs)
    for started in job.checkpoints.started(runs) if job.checkpoints else []:
        # What was started goes on as it is, even where less fits by now: in pieces it would start again.
        if started == runs[: len(started)] and len(started) <= most:
            return len(started)
    fit = min(runs_that_fit(task, task.device, sharers), 1 if job.longer else most, len(runs))
    fit = fit if job.deadline is None or job.longer else _inside(task, configs[:fit], job.seconds_left)
    return _whole(configs, fit) or fit if job.prune else fit


def _whole(configs: Sequence[Config], most: int) -> int:
    """The largest number of runs up to `most` with which no setting is cut in two."""
    settings = [replace(config, seed=0) for config in configs]
    return max((n for n in range(1, most + 1) if n == len(settings) or settings[n] != settings[n - 1]), default=0)


def _inside(task: Task, configs: Sequence[Config], seconds_left: Callable[[], float]) -> int:
    """How many of these runs can be trained together in that time; 0 where not even one can."""
    runs = len(configs)
    for _ in range(4):
        try:
            needed = SAFETY * estimate_seconds(task, configs[:runs])
        except MemoryError:
            raise
        except Exception:
            return runs  # what fails here fails in training too, where it is dealt with
        seconds = seconds_left()  # without what the estimate itself took
        if needed <= seconds:
            return runs
        # A smaller fleet takes more than its share of the time, so the estimate is made again.
        runs = min(runs - 1, int(runs * seconds / needed))
        if runs < 1:
            return 0
    return 0


def _reporting(progress: Callable[[Progress], None] | None) -> Callable[[Fleet], None] | None:
    return None if progress is None else lambda fleet: progress(Progress(fleet=fleet))


def _watched(call: Callable[..., Any] | None) -> Any:
    def watched(*given: Any) -> Any:
        try:
            return call(*given) if call else None
        except Exception as error:
            raise _WatcherError(error) from error

    return watched if call else None


def _works(device: torch.device) -> bool:
    """True where the device can still be used: after some errors CUDA refuses everything, and no run is to blame."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _reason(error: Exception) -> tuple[str, str]:
    """What failed, and where: the innermost call, and those around it."""
    frames = traceback.extract_tb(error.__traceback__)[: -AROUND - 1 : -1]
    where = ", from ".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__}: {error}", where
