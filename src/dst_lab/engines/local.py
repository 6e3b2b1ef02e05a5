"""The local engine: chunks of runs, one after the other, in this process. No server, no port."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from dst_lab.configs import Config
from dst_lab.engines.checkpoints import Checkpoints
from dst_lab.engines.chunk import build, by_fleet, fleet_of, train_chunk
from dst_lab.engines.ledger import Ledger
from dst_lab.engines.ledger import Outcome as Outcome
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.loop import Prune, Report, threads
from dst_lab.fleet.task import Task
from dst_lab.store import Store


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
    networks: bool = False,
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
        most: at most this many runs per chunk, whatever memory allows.
        seconds_left: how much time there is. Chunks are sized to end inside it, and no other is begun; one that was
            begun before goes on. What is not done when the time is up is saved, and left.
        prune: asked at every evaluation which runs of a chunk to give up; they are recorded as stopped.
        networks: whether to keep what was trained, beside the store.
    """
    ledger = Ledger(configs, store, checkpoints, networks)
    begun, fresh = ledger.chunks()
    queue = begun + fresh
    task: Task | None = None
    while queue and not (seconds_left and seconds_left() <= 0):
        chunk = queue.pop(0)
        if task is None or fleet_of(task.config) != fleet_of(chunk[0]):
            task = None  # so that its memory is free again
            task = build(chunk[0], source, device)
        result = train_chunk(
            task, chunk, checkpoints=checkpoints, report=report, stop=stop, most=most, seconds_left=seconds_left,
            prune=prune, networks=networks,
        )  # fmt: skip
        ledger.record(result.records)
        queue = result.again + queue
    return ledger.close()


def check(configs: Iterable[Config], *, device: torch.device, source: str | None = None) -> None:
    """Raise now what would keep these runs from being trained: data that are missing, sizes that do not fit."""
    for first, *_ in by_fleet(list(configs)):
        runs_that_fit(build(first, source, device), device)


@dataclass(frozen=True)
class LocalEngine:
    """The engine of this process, on one device, with data from one place."""

    device: torch.device
    source: str | None = None
    threads: int | None = None

    def check(self, configs: Iterable[Config]) -> None:
        check(configs, device=self.device, source=self.source)

    def train(self, configs: Iterable[Config], store: Store, *, watch: Report | None = None, **terms: Any) -> Outcome:
        with threads(self.threads):
            return train(configs, store, device=self.device, source=self.source, report=watch, **terms)
