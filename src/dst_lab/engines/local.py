"""The local engine: chunks of runs, one after the other, in this process. No server, no port."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.checkpoint import Checkpoint, runs_of
from dst_lab.fleet.config import Config
from dst_lab.fleet.loop import Fleet, Report
from dst_lab.store import Store, run_id
from dst_lab.tasks import TASKS


@dataclass(frozen=True)
class Outcome:
    """What became of a plan."""

    wanted: int
    already: int
    trained: int
    diverged: int


def train(
    configs: Iterable[Config],
    store: Store,
    *,
    device: torch.device,
    checkpoints: Path | None = None,
    source: str | None = None,
    report: Report | None = None,
    stop: Callable[[], bool] | None = None,
    most: int | None = None,
) -> Outcome:
    """Train what the store does not hold yet, chunk by chunk; each chunk is recorded whole when it ends.

    Args:
        configs: the plan.
        store: open for writing; this process is its only writer.
        device: cpu or cuda.
        checkpoints: folder for the chunk in progress; a killed plan goes on from there.
        source: where the data lie (a folder or a prepared file); None looks in the usual places.
        report: called after every step.
        stop: asked after every step; True saves a checkpoint and raises TrainingStoppedError.
        most: at most this many runs a chunk, whatever memory allows.
    """
    wanted = {run_id(config.to_dict()): config for config in configs}
    finished = store.finished()
    pending = {run: config for run, config in wanted.items() if run not in finished}
    trained = diverged = 0
    for chunk in _begun(pending, checkpoints) + _by_fleet(pending):
        queue = [[run for run in chunk if run in pending]]
        while queue:
            runs = queue.pop(0)
            if not runs:
                continue
            members = [pending[run] for run in runs]
            task = TASKS[members[0].task](members[0], source, device)
            fit = min(runs_that_fit(task, device), most or len(runs))
            if len(runs) > fit:
                queue = [runs[:fit], runs[fit:], *queue]
                continue
            path = checkpoints / f"{_name(runs)}.npz" if checkpoints else None
            try:
                records = Fleet(task, members, path).train(report, stop)
            except torch.cuda.OutOfMemoryError:
                if len(runs) == 1:
                    raise
                torch.cuda.empty_cache()
                queue = [runs[: len(runs) // 2], runs[len(runs) // 2 :], *queue]
                continue
            store.put(records)
            if path:
                Checkpoint(path).remove()
            trained += len(records)
            diverged += sum(record.status == "diverged" for record in records)
            for run in runs:
                del pending[run]
    return Outcome(len(wanted), len(wanted) - trained, trained, diverged)


def _begun(pending: dict[str, Config], checkpoints: Path | None) -> list[list[str]]:
    """Chunks that a checkpoint holds and that are still wanted whole, as they were put together."""
    found = []
    for path in sorted(checkpoints.glob("*.npz")) if checkpoints else []:
        runs = list(dict.fromkeys(runs_of(path) or []))
        if runs and all(run in pending for run in runs) and path.stem == _name(runs):
            found.append(runs)
    return found


def _by_fleet(pending: dict[str, Config]) -> list[list[str]]:
    """The runs that can be trained as one program, together, in the plan's order."""
    groups: dict[str, list[str]] = {}
    for run, config in pending.items():
        groups.setdefault(f"{config.task} {config.fleet_key()}", []).append(run)
    return list(groups.values())


def _name(runs: Sequence[str]) -> str:
    return sha256(" ".join(runs).encode()).hexdigest()[:16]
