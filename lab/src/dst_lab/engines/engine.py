"""What an engine is, and what each does with a chunk of runs: it trains as many as fit, and halves what failed."""

import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from dst_lab.fleet.checkpoint import SECONDS, Checkpoints
from dst_lab.fleet.contract import ContractError, ShapeError, check_built, made
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.fleet.optimiser import UpdateRule
from dst_lab.fleet.recording import provenance, records_of
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.store import Record, StoreError
from dst_lab.tasks import TASKS


@dataclass(frozen=True)
class Progress:
    """Something that has happened while runs are trained: one of these, the others at their defaults."""

    fleet: Fleet | None = None
    """A step was taken in this process."""
    records: Sequence[Record] = ()
    """These runs have ended and are recorded."""
    message: str = ""
    """A sentence about progress."""
    done: int = 0
    wanted: int = 0


@dataclass(frozen=True)
class Job:
    """How runs are to be trained, wherever they are.

    Args:
        fleet: at most this many runs at once, whatever memory allows.
        networks: whether to keep what was trained, next to the store.
        deadline: a time of `time.monotonic`, at which the chunk in progress is saved and left, and after which no other
            is started.
        checkpoint_seconds: between one checkpoint and the next; None: no checkpoints are written.
        progress: called after every step, every chunk that is recorded, and with what a person should know.
        stop: asked after every step, with Ray a few times per second; True ends training with a TrainingStoppedError,
            after a checkpoint where it is trained in this process.
        checkpoints: where the chunks in progress are saved; next to the store.
    """

    fleet: int | None = None
    networks: bool = False
    deadline: float | None = None
    checkpoint_seconds: float | None = SECONDS
    progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] | None = None
    checkpoints: Checkpoints | None = None

    def say(self, message: str) -> None:
        if self.progress:
            self.progress(Progress(message=message))

    def seconds_left(self) -> float:
        return math.inf if self.deadline is None else self.deadline - time.monotonic()


class Result(NamedTuple):
    """What became of a chunk. Runs in neither list are left, because the time was up."""

    records: list[Record]
    again: list[list[Config]]
    """Runs to be trained as chunks of their own: the halves of what failed, and what did not fit."""


class EngineLostError(Exception):
    """The engine's workers are gone. What was recorded is safe; the message is a sentence."""


class Engine(Protocol):
    """Trains chunks of runs. The caller records what comes back, and is the only writer of the store."""

    def check(self, configs: Sequence[Config]) -> None:
        """Raise now what would keep these runs from being trained: data that are missing, sizes that do not fit."""

    def train(self, started: Sequence[list[Config]], fresh: Sequence[list[Config]], job: Job) -> Iterator[Result]:
        """Train the chunks that were started before, as they are, then those that may be cut in pieces, and what
        results ask for again; each result as it ends. The caller records it before it asks for the next. The first
        chunk is trained for at least one step, so that commands with a short deadline come to an end when repeated."""


MOST = {"cpu": 64, "cuda": 2048}
"""Beyond these a larger fleet is no faster, and a smaller one is recorded sooner."""
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
    checkpoint = job.checkpoints.of([config.run_id for config in members]) if job.checkpoints else None
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
        progress = job.progress
        report = _watched(lambda fleet: progress(Progress(fleet=fleet))) if progress else None
        records = fleet.train(report, _watched(ended), job.networks)
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
        frames = traceback.extract_tb(error.__traceback__)[: -AROUND - 1 : -1]
        where = ", from ".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        reason = f"{type(error).__name__}: {error}"
        failure = _diverged(fleet) or failed(members[0], reason, where, task.device, fleet)
    # Outside the handlers, where nothing holds on to the fleet's memory any more.
    del fleet
    if task.device.type == "cuda":
        torch.cuda.empty_cache()
    if checkpoint:
        checkpoint.remove()
    again = halves(members) + ([rest] if rest else [])
    return Result([failure] if failure and len(members) == 1 else [], again)


def failed(config: Config, reason: str, where: str, device: torch.device, fleet: Fleet | None = None) -> Record:
    """The record of a run whose code failed."""
    detail = {"reason": reason, "where": where, "step": fleet.step if fleet else 0}
    origin = fleet.provenance() if fleet else provenance(device, 0.0, 1, {})
    return Record(config=config.to_dict(), status="failed", detail=detail, provenance=origin)


def _diverged(fleet: Fleet | None) -> Record | None:
    """The record of a lone run whose loss was not finite before its code failed: code may refuse such numbers."""
    if fleet is None or len(fleet.members) > 1 or not fleet.bad_step.any():
        return None
    (record,) = records_of(fleet)
    return record


def halves(configs: Sequence[Config]) -> list[list[Config]]:
    """Two chunks of one; none of a single run."""
    middle = len(configs) // 2
    return [list(configs[:middle]), list(configs[middle:])] if middle else []


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
    """How many of these runs to train together."""
    runs, most = [config.run_id for config in configs], job.fleet or len(configs)
    for started in job.checkpoints.started(runs) if job.checkpoints else []:
        # What was started goes on as it is, even where less fits by now: in pieces it would start again.
        if started == runs[: len(started)] and len(started) <= most:
            return len(started)
    try:
        return min(runs_that_fit(task, task.device, sharers, configs[0].seed), most, len(runs))
    except ContractError:
        raise
    except Exception:
        return 1  # the code of the first run fails: it is trained, and recorded, alone


def runs_that_fit(task: Task, device: torch.device, sharers: int = 1, seed: int | None = None) -> int:
    """A safe number of runs per fleet, from the memory that is free now and its `sharers`; at least 1."""
    most = int(0.7 * free_bytes(device) / sharers) // max(1, bytes_per_run(task, seed))
    return max(1, min(MOST[device.type], most))


def bytes_per_run(task: Task, seed: int | None = None) -> int:
    """About how much memory one more run takes, such as that of this seed."""
    seed = task.config.seed if seed is None else seed
    parameters, fixed, buffers = (made(task, part, seed).values() for part in ("initial", "fixed", "buffers"))
    numbers = sum(tensor.numel() for tensor in parameters)
    held = sum(tensor.numel() * tensor.element_size() for tensor in (*fixed, *buffers))
    # Parameters, gradients and the optimiser's two moments, in float32.
    return 4 * 4 * numbers + held + task.bytes_per_run()


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        # What torch keeps of earlier fleets' memory is free for the next one.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        with open("/proc/meminfo") as file:
            kilobytes = next(line.split()[1] for line in file if line.startswith("MemAvailable"))
        return 1024 * int(kilobytes)
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*given: Any) -> Any:
        try:
            return call(*given)
        except Exception as error:
            raise _WatcherError(error) from error

    return watched


def _works(device: torch.device) -> bool:
    """True where the device can still be used: after some errors CUDA refuses everything, and no run is to blame."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
