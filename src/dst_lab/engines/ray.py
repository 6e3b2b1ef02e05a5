"""The Ray engine: a chunk of runs is a plain task of Ray Core, on this machine's cores or GPUs or on a cluster.

A task returns the whole records of its chunk, and only the driver writes the store. What a lost worker or node was
training, Ray gives to another; it goes on from the checkpoint where the folder of checkpoints is shared with it.
"""

import math
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dst_lab import plugins
from dst_lab.configs import Config, Ruled
from dst_lab.configs.rules import BUILT_IN as BUILT_IN_RULES
from dst_lab.data import DataError
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.engines.chunk import Result, build, by_fleet, failed, fleet_of, halves, train_chunk
from dst_lab.engines.cluster import Cluster
from dst_lab.engines.engine import Watch
from dst_lab.engines.ledger import Ledger, Outcome
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.loop import Prune, TrainingStoppedError, threads
from dst_lab.fleet.task import Task
from dst_lab.store import Record, Store
from dst_lab.tasks import BUILT_IN

RETRIES = 10
"""How often a chunk is begun again after its worker or node was lost; then it is halved as if its code had failed."""
STOP = "stop"
"""What the driver writes into its mark among the checkpoints."""
PATIENCE = 30.0
"""Seconds that workers have to save when the driver is asked to stop, or the time is up."""

Tell = Callable[[Sequence[Record], int, int], None]


@dataclass(frozen=True)
class Terms:
    """What a worker needs to know beside the configs."""

    source: str | None
    device: str
    threads: int
    sharers: int
    """How many chunks are trained in the memory of a node."""
    most: int | None = None
    deadline: float | None = None
    """A time of the wall clock, which the machines of a cluster share."""
    mark: Path | None = None
    """A file in the folder of checkpoints; a worker that does not see it goes without."""
    checkpoint_seconds: float = 0.0
    prune: Prune | None = None
    networks: bool = False


def train(
    configs: Iterable[Config],
    store: Store,
    *,
    cluster: Cluster,
    checkpoints: Checkpoints | None = None,
    source: str | None = None,
    report: Tell | None = None,
    stop: Callable[[], bool] | None = None,
    most: int | None = None,
    seconds_left: Callable[[], float] | None = None,
    prune: Prune | None = None,
    networks: bool = False,
) -> Outcome:
    """Train what the store does not hold yet, as `local.train` does, in chunks that give every worker something to do.

    Args:
        cluster: where; connected to when there is something to train.
        source: where the data lie on the machines of the cluster.
        report: called as chunks are recorded, with their records, the number of runs so far and that of all.

    The others are those of `local.train`. `stop` is asked a few times a second.
    """
    ledger = Ledger(configs, store, checkpoints, networks)
    begun, fresh = ledger.chunks()
    lost = ""
    if begun or fresh:
        cluster.connect()
        deadline = None if seconds_left is None else time.time() + seconds_left()
        terms = Terms(
            source, cluster.device, cluster.threads, cluster.sharers(), most, deadline, prune=prune, networks=networks
        )
        if checkpoints:
            with checkpoints.shared() as mark:
                shared = Terms(**{**vars(terms), "mark": mark, "checkpoint_seconds": checkpoints.seconds})
                lost = _Driver(ledger, cluster, shared, report, stop).follow(begun, fresh)
        else:
            lost = _Driver(ledger, cluster, terms, report, stop).follow(begun, fresh)
    return ledger.close(lost)


def _own(config: Config) -> list[str]:
    """What of a run was registered from outside: its task, its estimator, the rules of its temperatures."""
    estimator = config.estimator
    rules = {course.name for _, course in estimator.temperatures if isinstance(course, Ruled)} - BUILT_IN_RULES
    task = [] if config.task in BUILT_IN else [config.task]
    return [*task, *([estimator.name] if estimator.card.own else []), *rules]


def check(configs: Iterable[Config], *, cluster: Cluster, source: str | None = None) -> None:
    """`local.check`, on a machine of the cluster."""
    firsts = [first for first, *_ in by_fleet(list(configs))]
    if own := sorted({name for first in firsts for name in _own(first)} - plugins.load()):
        raise ValueError(
            f"the engine ray trains in processes that do not know {', '.join(own)}: take --engine local, or install "
            f"what registers it as a package with the entry point {plugins.GROUP}"
        )
    cluster.connect()
    _value(cluster.submit(_check, 0, firsts, Terms(source, cluster.device, cluster.threads, 1)))


@dataclass(frozen=True)
class RayEngine:
    """The engine of a cluster, with data from one place on its machines."""

    cluster: Cluster
    source: str | None = None

    def check(self, configs: Iterable[Config]) -> None:
        check(configs, cluster=self.cluster, source=self.source)

    def train(self, configs: Iterable[Config], store: Store, *, watch: Watch | None = None, **terms: Any) -> Outcome:
        report = watch.recorded if watch else None
        return train(configs, store, cluster=self.cluster, source=self.source, report=report, **terms)


class _Driver:
    """Hands out chunks, as many at a time as there are workers, and records what comes back."""

    def __init__(
        self, ledger: Ledger, cluster: Cluster, terms: Terms, report: Tell | None, stop: Callable[[], bool] | None
    ) -> None:
        self.ledger, self.cluster, self.terms, self.report, self.stop = ledger, cluster, terms, report, stop
        self.flying: dict[Any, list[Config]] = {}
        self.wanted = len(ledger.pending)

    def follow(self, begun: list[list[Config]], fresh: list[list[Config]]) -> str:
        """Train them; a sentence where Ray itself was lost on the way."""
        from ray.exceptions import RayError

        try:
            self.train(begun, fresh)
        except RayError as error:
            where = self.cluster.address or "this machine"
            name = type(error).__name__
            return f"Ray at {where} was lost ({name}); what was recorded is safe, and the same command goes on"
        return ""

    def train(self, begun: list[list[Config]], fresh: list[list[Config]]) -> None:
        self._record([])
        queue = begun + self._spread(fresh, begun)
        while queue or self.flying:
            if self.stop and self.stop():
                self._stop()
            late = time.time() - (self.terms.deadline or math.inf)
            if late >= 0:
                queue = []
            if late > PATIENCE:  # what is still out there was not even begun, or hangs
                return
            while queue and len(self.flying) < self.cluster.slots():
                chunk = queue.pop(0)
                self.flying[self.cluster.submit(_train, RETRIES, chunk, self.terms)] = chunk
            for ready in self.cluster.wait(list(self.flying), 0.2):
                result = self._result(ready, self.flying.pop(ready))
                if result.records:
                    self._record(result.records)
                queue = self._spread(result.again, queue) + queue

    def _spread(self, chunks: list[list[Config]], queue: list[list[Config]]) -> list[list[Config]]:
        """The chunks in pieces of a worker's share, so that none is idle while another has more than it. Where runs are
        compared and given up, those of a chunk stay together."""
        if self.terms.prune:
            return chunks
        ahead = sum(map(len, [*chunks, *queue, *self.flying.values()]))
        share = -(-ahead // self.cluster.slots())
        return [chunk[at : at + share] for chunk in chunks for at in range(0, len(chunk), share)]

    def _record(self, records: list[Record]) -> None:
        self.ledger.record(records)
        if self.report:
            self.report(records, self.wanted - len(self.ledger.pending), self.wanted)

    def _result(self, ready: Any, chunk: list[Config]) -> Result:
        from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError

        try:
            return _value(ready)
        except (NodeDiedError, ObjectLostError, OutOfMemoryError, WorkerCrashedError) as error:
            reason = f"its worker was lost {RETRIES + 1} times, at last by {type(error).__name__}"
        if len(chunk) > 1:
            return Result([], halves(chunk))
        return Result([failed(chunk[0], reason, "a Ray worker", torch.device(self.cluster.device))], [])

    def _stop(self) -> None:
        """Let the workers save, and record what ends meanwhile."""
        saved = self.terms.mark is not None
        if self.terms.mark:
            with suppress(OSError):
                self.terms.mark.write_text(STOP)
        end = time.monotonic() + PATIENCE
        while self.flying and time.monotonic() < end:
            for ready in self.cluster.wait(list(self.flying), 0.2):
                result = self._result(ready, self.flying.pop(ready))
                saved = saved and result.saved
                if result.records:
                    self._record(result.records)
        raise TrainingStoppedError(saved=saved and not self.flying)


def _value(reference: Any) -> Any:
    """What a task returned; what it raised is raised as it was there, without Ray's wrapping."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if "failed to import on the worker" in str(error):
            raise ValueError(
                "a Ray worker cannot import dst_lab: every node needs the same environment as this one, with "
                'pip install "decoupled-st[ray]"'
            ) from error
        raise error.cause from None


def _train(configs: list[Config], terms: Terms) -> Result:
    """In a worker: a chunk of runs. A task that is retried finds the checkpoint of the one before, where it can."""
    shared = terms.mark and terms.mark.exists()
    checkpoints = Checkpoints(terms.mark.parent, terms.checkpoint_seconds) if terms.mark and shared else None
    stop = _Stop(terms.mark) if terms.mark and shared else None
    if stop and stop():
        return Result([], [])
    task, deadline = _task(configs[0], terms), terms.deadline
    left = None if deadline is None else (lambda: deadline - time.time())
    with threads(terms.threads):
        try:
            return train_chunk(
                task, configs, checkpoints=checkpoints, stop=stop, most=terms.most, seconds_left=left,
                sharers=terms.sharers, prune=terms.prune, networks=terms.networks,
            )  # fmt: skip
        except TrainingStoppedError as stopped:
            return Result([], [], stopped.saved)


def _check(configs: list[Config], terms: Terms) -> None:
    for config in configs:
        task = _task(config, terms)
        runs_that_fit(task, task.device)


class _Stop:
    """True where the driver says so in its mark, which is read a few times a second, or has gone."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.next, self.said = mark, 0.0, False

    def __call__(self) -> bool:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.2
            try:
                self.said = self.mark.read_text() == STOP
            except FileNotFoundError:
                self.said = True
            except OSError:
                pass  # a shared folder that stumbles: asked again in a moment
        return self.said


_kept: list[Task] = []
"""The task of the chunk before, in a worker: its data need not be read again."""


def _task(config: Config, terms: Terms) -> Task:
    if _kept and fleet_of(_kept[0].config) == fleet_of(config) and _kept[0].device.type == terms.device:
        return _kept[0]
    _kept.clear()
    plugins.load()
    torch.set_float32_matmul_precision("high" if terms.device == "cuda" else "highest")
    try:
        _kept.append(build(config, terms.source, torch.device(terms.device)))
    except (DataError, OSError, ValueError) as error:
        raise DataError(f"on node {socket.gethostname()}: {error}") from None
    return _kept[0]
