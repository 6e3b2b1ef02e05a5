"""What is being trained now, for whoever looks on from another process, such as `dst watch`. Needs no torch to be read.

A process that trains publishes small files in the folder of checkpoints beside the store: `round.live` says how many
runs are wanted and recorded, and each chunk in progress has a file with the history of its runs so far. A file is
replaced whole, as often as it costs at most 1% of the time, and removed when what it tells of has ended. Nothing
depends on it: a killed process leaves its files behind, of which a reader sees that the process is gone, and the next
one that trains removes them.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dst_lab.configs import Config
from dst_lab.configs.cards import metric
from dst_lab.replace import host, is_alive, resolved, write_text, writing

SUFFIX = ".live"
SECONDS, SHARE = 0.5, 0.01
"""The least time between one file and the next, and the largest share of the time that goes into writing."""
FORMAT = 1


def folder_of(store: Path) -> Path:
    """Where what is in progress lies, checkpoints and what is told of it: beside the file itself, not beside a link."""
    file = resolved(store) if store.is_symlink() else store
    return file.with_name(f"{file.name}.checkpoints")


@dataclass(frozen=True)
class Process:
    """Who published something, and when."""

    pid: int
    host: str
    told: float
    """A time of the wall clock."""

    @classmethod
    def this(cls) -> "Process":
        return cls(os.getpid(), host(), time.time())

    @property
    def gone(self) -> bool:
        """True for a process of this machine that no longer runs."""
        return self.host == host() and not is_alive(self.pid)


@dataclass(frozen=True)
class Round:
    """How far the runs are that the writer of the store was asked for."""

    process: Process
    wanted: int
    recorded: int
    """Those of them that are in the store, from this process or from before."""
    seconds: float
    """Since it began."""
    trained: int
    """Those that this process has recorded."""


@dataclass(frozen=True)
class Chunk:
    """Runs that are being trained together."""

    process: Process
    configs: Sequence[Mapping[str, Any]]
    alive: Sequence[int]
    """Those of the runs that were not given up."""
    step: int
    steps: int
    seconds: float
    history: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    """A metric's steps [T] and values [T, runs]."""


class InTraining(Protocol):
    """What is looked at of a fleet."""

    alive: list[int]
    step: int
    steps: int
    history: list[tuple[int, dict[str, npt.NDArray[Any]]]]

    @property
    def seconds(self) -> float:
        """The seconds of training so far."""


class ChunkFile:
    """Publishes a chunk while it is trained; call it after every step, and close it at the end."""

    def __init__(self, path: Path, configs: Sequence[Config]) -> None:
        self.path = path
        self._configs = np.frombuffer(json.dumps([config.to_dict() for config in configs]).encode(), np.uint8)
        self._last, self._took = time.monotonic(), 0.0

    def __call__(self, fleet: InTraining) -> None:
        begun = time.monotonic()
        if begun - self._last < max(SECONDS, self._took / SHARE):
            return
        with suppress(OSError):  # who looks on does not see it, and training goes on
            self._write(fleet)
        self._last = time.monotonic()
        self._took = self._last - begun

    def _write(self, fleet: InTraining) -> None:
        head = {
            "format": FORMAT,
            "process": vars(Process.this()),
            "alive": fleet.alive,
            "step": fleet.step,
            "steps": fleet.steps,
            "seconds": fleet.seconds,
        }
        packed: dict[str, Any] = {"head": np.frombuffer(json.dumps(head).encode(), np.uint8), "configs": self._configs}
        for name in dict.fromkeys(name for _, row in fleet.history for name in row):
            points = [(step, _one_per_run(name, row[name])) for step, row in fleet.history if name in row]
            if all(values is not None for _, values in points):
                packed[f"steps/{name}"] = np.array([step for step, _ in points])
                packed[f"values/{name}"] = np.stack([values for _, values in points if values is not None])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self.path) as stream:
            np.savez(stream, **packed)

    def close(self) -> None:
        remove(self.path)


def _one_per_run(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """[runs]; of several numbers per run the mean where it is what counts, else None."""
    if values.ndim > 1 and metric(name).averaged:
        values = values.reshape(len(values), -1).mean(-1)
    return values if values.ndim == 1 else None


class RoundFile:
    """Publishes how far a round is, from its beginning until it is closed."""

    def __init__(self, folder: Path, wanted: int, already: int) -> None:
        self._path, self._wanted, self._already = folder / f"round{SUFFIX}", wanted, already
        self._begun = time.monotonic()
        self.tell(0)

    def tell(self, trained: int) -> None:
        """So many have been recorded by this process."""
        text = json.dumps(
            {
                "format": FORMAT,
                "process": vars(Process.this()),
                "wanted": self._wanted,
                "recorded": self._already + trained,
                "seconds": time.monotonic() - self._begun,
                "trained": trained,
            }
        )
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, text)

    def close(self) -> None:
        remove(self._path)


def remove(path: Path) -> None:
    """The file, and the folder where it was the last one."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def round_in(folder: Path) -> Round | None:
    """The round that is told of in a folder; None where there is none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads((folder / f"round{SUFFIX}").read_text(encoding="utf-8"))
        if fields.pop("format") == FORMAT:
            return Round(**{**fields, "process": Process(**fields["process"])})
    return None


def chunks_in(folder: Path) -> list[Chunk]:
    """The chunks that are told of in a folder, in no order that means anything."""
    chunks = [_read(path) for path in sorted(folder.glob(f"*{SUFFIX}")) if path.stem != "round"]
    return [chunk for chunk in chunks if chunk is not None]


def _read(path: Path) -> Chunk | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(arrays.pop("head").tobytes())
        if head.pop("format") != FORMAT:
            return None
        configs = json.loads(arrays.pop("configs").tobytes())
        names = [name.removeprefix("steps/") for name in arrays if name.startswith("steps/")]
        history = {name: (arrays[f"steps/{name}"], arrays[f"values/{name}"]) for name in names}
        return Chunk(**{**head, "process": Process(**head["process"])}, configs=configs, history=history)
    except Exception:
        # Gone in between, or another's bytes: what numpy, zipfile and json raise for those has no end.
        return None
