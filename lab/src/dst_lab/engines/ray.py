"""The Ray engine: chunks of runs on the workers of a Ray cluster, or of a Ray that is started on this machine.

A worker returns the whole records of its chunk, and only the driver writes the store. What a lost worker or node was
training, Ray gives to another; it goes on from the checkpoint where the folder of checkpoints is shared with it.
"""

import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dst_lab import plugins
from dst_lab.data import DataError
from dst_lab.engines.engine import (
    EngineLostError,
    Job,
    Result,
    build,
    by_fleet,
    failed,
    fleet_of,
    halves,
    train_chunk,
)
from dst_lab.estimators import is_own
from dst_lab.fleet.checkpoint import Checkpoints
from dst_lab.fleet.loop import TrainingStoppedError, threads
from dst_lab.fleet.recording import parts
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from dst_lab.tasks import TASKS

RETRIES = 10
"""How often a chunk is started again after its worker or node was lost; then it is halved as if its code had failed."""
ALONE = {
    "RAY_AUTH_MODE": "token",
    # Ray takes the machine's address rather than 127.0.0.1, and listens on every interface, unless it is told that
    # there are no clusters here, as on the systems that this variable is named after.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""The environment of a Ray that is started here: no other machine can reach it, and none of its data leave this one."""
PATIENCE = 30.0
"""Seconds that workers have to save when the time is up."""


@dataclass(frozen=True)
class Terms:
    """What a worker needs to know besides the configs."""

    source: str | None
    device: str
    threads: int
    sharers: int
    """How many chunks are trained in the memory of a node."""
    job: Job = field(default_factory=Job)
    """Without what cannot be sent: callbacks, checkpoints, and a deadline of this machine's clock."""
    deadline: float = math.inf
    """A time of the wall clock, which the machines of a cluster share."""
    folder: Path | None = None
    """The folder of checkpoints; a worker that does not see it trains without."""


class RayEngine:
    """The engine of a cluster. Connected to when there is something to train; `close` leaves it.

    Args:
        address: HOST:PORT of a cluster's head, or "auto"; None: Ray is started on this machine, for this process.
        source: where the data lie on its machines.
        workers: at most so many chunks at a time. As many as there are GPUs or cores.
        threads: CPU threads per chunk; a run's bits depend on it.
        device: "cpu", "cuda", or "auto": cuda where the cluster has a GPU.
    """

    def __init__(
        self,
        address: str | None = None,
        source: str | None = None,
        *,
        workers: int | None = None,
        threads: int = 1,
        device: str = "auto",
    ) -> None:
        self.address, self.source, self.workers, self.threads = address, source, workers, threads
        self._wanted, self.device = device, ""
        self._ray: Any = None

    def check(self, configs: Sequence[Config]) -> None:
        """Check the configs on a machine of the cluster."""
        firsts = [first for first, *_ in by_fleet(configs)]
        used = [part for first in firsts for part in parts(TASKS[first.task], first.estimator).values()]
        if own := sorted({name for name, kind in used if is_own(kind)} - plugins.load()):
            raise ValueError(
                f"the engine ray trains in processes that do not know {', '.join(own)}: take --engine local, or "
                f"install what registers it as a package with the entry point {plugins.GROUP}"
            )
        self._connect()
        self._value(self._submit(_check, 0, firsts, Terms(self.source, self.device, self.threads, 1)))

    def train(self, started: Sequence[list[Config]], fresh: Sequence[list[Config]], job: Job) -> Iterator[Result]:
        """Train in chunks that give every worker something to do."""
        if not started and not fresh:
            return
        self._connect()
        where = self.address or "this machine"
        try:
            yield from self._train(list(started), list(fresh), self._terms(job), job)
        except self._ray.exceptions.RayError as error:
            raise EngineLostError(
                f"Ray at {where} was lost ({type(error).__name__}); what was recorded is safe, and the same command "
                "goes on"
            ) from error

    def close(self) -> None:
        """Leave the cluster; its workers stop what they do for us, and a Ray that was started here ends."""
        if self._ray:
            self._ray.shutdown()
        self._ray, self.device = None, ""

    def _connect(self) -> None:
        """Start or join. Raises ValueError where there is no Ray, no answer or no GPU."""
        if self._ray:
            return
        if self.address is None:
            for name, value in ALONE.items():
                os.environ.setdefault(name, value)
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise ValueError('--engine ray needs Ray: pip install "dst-lab[ray]"') from None
        before = signal.getsignal(signal.SIGTERM)
        try:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
            if self.address is None:
                options |= {"include_dashboard": False}
            ray.init(address=self.address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            where = self.address or "this machine"
            raise ValueError(
                f"Ray at {where} cannot be used: {error}. Is it the address that `ray start --head` printed?"
            ) from error
        finally:
            if before is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # which Ray takes for itself
        self._ray = ray
        gpus = any(self._amounts("GPU"))
        self.device = "cuda" if gpus and self._wanted != "cpu" else "cpu"
        most = max(self._amounts("CPU"), default=0)
        if self._wanted == "cuda" and not gpus:
            self.close()
            raise ValueError("--device cuda: no node of the Ray cluster has a GPU; leave it out, or take --device cpu")
        if not any(self._places()):
            self.close()
            raise ValueError(
                f"--threads {self.threads}: no node of the Ray cluster has so many CPUs; take at most {most:g}"
            )

    def _amounts(self, resource: str) -> list[float]:
        """How much of a resource each node has."""
        return [node["Resources"].get(resource, 0.0) for node in self._ray.nodes() if node["Alive"]]

    def _places(self) -> list[int]:
        """The chunks that each node has room for."""
        kind, need = ("GPU", 1) if self.device == "cuda" else ("CPU", self.threads)
        return [int(amount // need) for amount in self._amounts(kind)]

    def _slots(self) -> int:
        """How many chunks can be trained at a time, now: nodes come and go."""
        return max(1, min(self.workers or sys.maxsize, sum(self._places())))

    def _terms(self, job: Job) -> Terms:
        # Each chunk on a GPU has it to itself; on CPUs the chunks of a node share its memory.
        sharers = 1 if self.device == "cuda" else min(self._slots(), max(self._places()))
        sent = replace(job, deadline=None, progress=None, stop=None, checkpoints=None)
        deadline = time.time() + max(0.0, job.seconds_left())
        folder = job.checkpoints.made() if job.checkpoints else None
        return Terms(self.source, self.device, self.threads, sharers, sent, deadline, folder)

    def _submit(self, function: Any, retries: int, *arguments: Any) -> Any:
        """Call a function of an importable module on a worker; a reference to what it will return."""
        needs = {"num_gpus": 1} if self.device == "cuda" else {"num_cpus": self.threads}
        return self._ray.remote(max_retries=retries, **needs)(function).remote(*arguments)

    def _train(self, queue: list[list[Config]], fresh: list[list[Config]], terms: Terms, job: Job) -> Iterator[Result]:
        """Hand out chunks, as many at a time as there are workers; each result as it comes back."""
        flying: dict[Any, list[Config]] = {}
        queue, first = queue + self._spread(fresh, queue, flying), True
        while queue or flying:
            if job.stop and job.stop():
                raise TrainingStoppedError  # the workers end with the driver: their chunks go on from the checkpoints
            late = time.time() - terms.deadline
            if late >= 0 and not first:
                queue = []
            first = False
            if late > PATIENCE:  # what is still out there was not even started, or hangs
                return
            while queue and len(flying) < self._slots():
                chunk = queue.pop(0)
                flying[self._submit(_train, RETRIES, chunk, terms)] = chunk
            ended, _ = self._ray.wait(list(flying), num_returns=1, timeout=0.2) if flying else ([], [])
            for ready in ended:
                result = self._result(ready, flying.pop(ready))
                yield result
                queue = self._spread(result.again, queue, flying) + queue

    def _spread(
        self, chunks: list[list[Config]], queue: list[list[Config]], flying: dict[Any, list[Config]]
    ) -> list[list[Config]]:
        """The chunks in pieces of a worker's share, so that none is idle while another has more than it."""
        ahead = sum(map(len, [*chunks, *queue, *flying.values()]))
        share = -(-ahead // self._slots())
        return [chunk[at : at + share] for chunk in chunks for at in range(0, len(chunk), share)]

    def _result(self, ready: Any, chunk: list[Config]) -> Result:
        errors = self._ray.exceptions
        try:
            return self._value(ready)
        except (errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError, errors.WorkerCrashedError) as e:
            reason = f"its worker was lost {RETRIES + 1} times, at last by {type(e).__name__}"
        if len(chunk) > 1:
            return Result([], halves(chunk))
        return Result([failed(chunk[0], reason, "a Ray worker", torch.device(self.device))], [])

    def _value(self, reference: Any) -> Any:
        """What a task returned. An error that it raised is raised again, without Ray's wrapping."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if "failed to import on the worker" in str(error):
                raise ValueError(
                    "a Ray worker cannot import dst_lab: every node needs the same environment as this one, with "
                    'pip install "dst-lab[ray]"'
                ) from error
            raise error.cause from None


def _train(configs: list[Config], terms: Terms) -> Result:
    """Train a chunk of runs in a worker. A retried task goes on from the checkpoint of the one before, where it can."""
    job = replace(terms.job, deadline=time.monotonic() + terms.deadline - time.time())
    if terms.folder and terms.folder.is_dir():
        job = replace(job, checkpoints=Checkpoints(terms.folder, terms.job.checkpoint_seconds or 0.0))
    if terms.deadline == math.inf:
        job = replace(job, deadline=None)
    task = _task(configs[0], terms)
    with threads(terms.threads):
        return train_chunk(task, configs, job, terms.sharers)


def _check(configs: list[Config], terms: Terms) -> None:
    for config in configs:
        _task(config, terms)


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
