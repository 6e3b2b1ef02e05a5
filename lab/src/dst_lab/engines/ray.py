"""The Ray engine: a chunk of runs is a plain task of Ray Core, on this machine's cores or GPUs or on a cluster.

A task returns the whole records of its chunk, and only the driver writes the store. What a lost worker or node was
training, Ray gives to another; it goes on from the checkpoint where the folder of checkpoints is shared with it.
"""

import math
import socket
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dst_lab import plugins
from dst_lab.data import DataError
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.engines.chunk import Result, build, by_fleet, failed, fleet_of, halves, train_chunk
from dst_lab.engines.cluster import Cluster
from dst_lab.engines.engine import Job, Outcome
from dst_lab.engines.ledger import Ledger
from dst_lab.estimators import Ruled, is_own, rules
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.loop import Prune, TrainingStoppedError, threads
from dst_lab.fleet.task import Task
from dst_lab.runs import BUILT_IN, Config
from dst_lab.store import Record, Store

RETRIES = 10
"""How often a chunk is begun again after its worker or node was lost; then it is halved as if its code had failed."""
STOP = "stop"
"""What the driver writes into its mark among the checkpoints."""
PATIENCE = 30.0
"""Seconds that workers have to save when the driver is asked to stop, or the time is up."""


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
    longer: bool = False


def _own(config: Config) -> list[str]:
    """The parts of a run that were registered from outside: task, estimator, rules of its temperatures."""
    estimator = config.estimator
    set_by = {course.name for _, course in estimator.temperatures if isinstance(course, Ruled)}
    own = [name for name in set_by if is_own(rules()[name])]
    task = [] if config.task in BUILT_IN else [config.task]
    return [*task, *([estimator.name] if is_own(estimator.kind) else []), *own]


@dataclass(frozen=True)
class RayEngine:
    """The engine of a cluster.

    Args:
        cluster: where; connected to when there is something to train.
        source: where the data lie on its machines.
    """

    cluster: Cluster
    source: str | None = None

    def check(self, configs: Sequence[Config]) -> None:
        """Check the configs on a machine of the cluster."""
        firsts = [first for first, *_ in by_fleet(configs)]
        if own := sorted({name for first in firsts for name in _own(first)} - plugins.load()):
            raise ValueError(
                f"the engine ray trains in processes that do not know {', '.join(own)}: take --engine local, or "
                f"install what registers it as a package with the entry point {plugins.GROUP}"
            )
        self.cluster.connect()
        terms = Terms(self.source, self.cluster.device, self.cluster.threads, 1)
        _value(self.cluster.submit(_check, 0, firsts, terms))

    def train(self, configs: Sequence[Config], store: Store, job: Job) -> Outcome:
        """Train in chunks that give every worker something to do."""
        ledger = Ledger(configs, store, job)
        begun, fresh = ledger.chunks()
        lost = ""
        if begun or fresh:
            self.cluster.connect()
            with job.checkpoints.shared() if job.checkpoints else nullcontext() as mark:
                lost = _Driver(ledger, self.cluster, self._terms(job, mark), job).follow(begun, fresh)
        return ledger.close(lost)

    def _terms(self, job: Job, mark: Path | None) -> Terms:
        cluster = self.cluster
        return Terms(
            source=self.source,
            device=cluster.device,
            threads=cluster.threads,
            sharers=cluster.sharers(),
            most=job.most,
            deadline=None if job.seconds_left is None else time.time() + max(0.0, job.seconds_left()),
            mark=mark,
            checkpoint_seconds=job.checkpoints.seconds if job.checkpoints else 0.0,
            prune=job.prune,
            networks=job.networks,
            longer=job.longer,
        )


class _Driver:
    """Hands out chunks, as many at a time as there are workers, and records what comes back."""

    def __init__(self, ledger: Ledger, cluster: Cluster, terms: Terms, job: Job) -> None:
        self.ledger, self.cluster, self.terms, self.job = ledger, cluster, terms, job
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
        queue, first = begun + self._spread(fresh, begun), self.terms.longer
        while queue or self.flying:
            if self.job.stop and self.job.stop():
                self._stop()
            late = time.time() - (self.terms.deadline or math.inf)
            if late >= 0 and not first:
                queue = []
            first = False
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
        if self.job.watch:
            self.job.watch.recorded(records, self.wanted - len(self.ledger.pending), self.wanted)

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
                'pip install "dst-lab[ray]"'
            ) from error
        raise error.cause from None


def _train(configs: list[Config], terms: Terms) -> Result:
    """Train a chunk of runs in a worker. A retried task goes on from the checkpoint of the one before, where it can."""
    shared = terms.mark and terms.mark.exists()
    checkpoints = Checkpoints(terms.mark.parent, terms.checkpoint_seconds) if terms.mark and shared else None
    stop = _Stop(terms.mark) if terms.mark and shared else None
    if stop and stop():
        return Result([], [])
    task, deadline = _task(configs[0], terms), terms.deadline
    left = None if deadline is None else (lambda: deadline - time.time())
    with threads(terms.threads):
        try:
            job = Job(checkpoints, None, stop, terms.most, left, terms.prune, terms.networks, longer=terms.longer)
            return train_chunk(task, configs, job, terms.sharers)
        except TrainingStoppedError as stopped:
            return Result([], [], stopped.saved)


def _check(configs: list[Config], terms: Terms) -> None:
    for config in configs:
        task = _task(config, terms)
        runs_that_fit(task, task.device)


class _Stop:
    """True where the driver says so in its mark, which is read a few times a second, or has gone."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.next, self.stopped = mark, 0.0, False

    def __call__(self) -> bool:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.2
            try:
                self.stopped = self.mark.read_text() == STOP
            except FileNotFoundError:
                self.stopped = True
            except OSError:
                pass  # a shared folder that stumbles: asked again in a moment
        return self.stopped


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
