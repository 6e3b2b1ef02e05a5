"""What an engine is: something that trains chunks of runs. What it is given, and what it gives back."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dst_lab.fleet.checkpoint import SECONDS, Checkpoints
from dst_lab.fleet.loop import Fleet
from dst_lab.runs import Config
from dst_lab.store import Record


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
