"""The local engine: chunks of runs, one after the other, in this process. No server, no port."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dst_lab.engines.engine import Job, Result, build, by_fleet, fleet_of, train_chunk
from dst_lab.fleet.loop import threads
from dst_lab.fleet.task import Task
from dst_lab.runs import Config


@dataclass(frozen=True)
class LocalEngine:
    """The engine of this process.

    Args:
        device: cpu or cuda.
        source: the folder with the data sets; None looks in the usual places.
        threads: of the CPU; a run's bits depend on it. None: as many as torch has.
    """

    device: torch.device
    source: str | None = None
    threads: int | None = None

    def check(self, configs: Sequence[Config]) -> None:
        for first, *_ in by_fleet(configs):
            build(first, self.source, self.device)

    def train(self, started: Sequence[list[Config]], fresh: Sequence[list[Config]], job: Job) -> Iterator[Result]:
        queue = [*started, *fresh]
        task: Task | None = None
        with threads(self.threads):
            while queue and (task is None or job.seconds_left() > 0):
                chunk = queue.pop(0)
                if task is None or fleet_of(task.config) != fleet_of(chunk[0]):
                    task = None  # so that its memory is free again
                    task = build(chunk[0], self.source, self.device)
                result = train_chunk(task, chunk, job)
                queue = result.again + queue
                yield result
