"""What an engine is: something that trains runs and records them. What it is given, and what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.fleet.loop import Fleet, Prune
from dst_lab.runs import Config
from dst_lab.store import Record, Store


class Watch(Protocol):
    """Who looks on while runs are trained."""

    def __call__(self, fleet: Fleet) -> None:
        """A step was taken in this process."""

    def recorded(self, records: Sequence[Record], done: int, wanted: int) -> None:
        """A chunk came back from elsewhere."""


@dataclass(frozen=True)
class Job:
    """How runs are to be trained, wherever they are.

    Args:
        checkpoints: where the chunks in progress are saved; a killed plan goes on from there.
        watch: who is told of every step, or, by an engine that trains elsewhere, of every chunk that came back.
        stop: asked after every step, elsewhere a few times per second; True saves a checkpoint and raises
            TrainingStoppedError.
        most: at most this many runs per chunk, whatever memory allows.
        seconds_left: how much time there is. Chunks are sized to end inside it, and no other is begun; one that was
            begun before goes on. What is not done when the time is up is saved, and left.
        prune: asked at every evaluation which runs of a chunk to give up; they are recorded as stopped.
        networks: whether to keep what was trained, beside the store.
        before: how many runs the plan has had before; they count as already there.
        longer: whether runs are begun, too, that do not end in the time there is, one by one; even where it is up, what
            was begun goes on by a step, or one is begun.
    """

    checkpoints: Checkpoints | None = None
    watch: Watch | None = None
    stop: Callable[[], bool] | None = None
    most: int | None = None
    seconds_left: Callable[[], float] | None = None
    prune: Prune | None = None
    networks: bool = False
    before: int = 0
    longer: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a plan."""

    wanted: int
    already: int
    trained: int
    diverged: int
    left: int
    """Not trained because the time was up, or for the reason in `lost`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Runs whose code failed: what they are, and why."""
    stopped: int = 0
    """Given up early, because others did better."""
    without_network: tuple[str, ...] = ()
    """The ids of runs that were there already, without the network that is wanted."""
    worse: tuple[str, ...] = ()
    """The ids of those that are done, and worse than untrained networks."""
    lost: str = ""
    """What broke off the training, in a sentence: the engine's workers are gone."""

    @property
    def idle(self) -> bool:
        """True where runs are left, and none has ended."""
        return bool(self.left) and not (self.trained or self.stopped or self.failed or self.lost)


class Engine(Protocol):
    """Trains what a store lacks, chunk by chunk; each chunk is recorded whole when it ends."""

    def check(self, configs: Sequence[Config]) -> None:
        """Raise now what would keep these runs from being trained: data that are missing, sizes that do not fit."""

    def train(self, configs: Sequence[Config], store: Store, job: Job) -> Outcome:
        """Train those of the runs that the store lacks, and record them. The store is open for writing, and this
        process is its only writer."""
