"""Checkpoints: one file per chunk in progress, in a folder next to the store, of which the store's writer is the owner.

A checkpoint is atomic, without pickle, and enough to go on as if nothing had happened.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dst_lab.replace import resolved, writing

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

SECONDS = 60.0
SHARE = 0.01
"""Saving may take this share of the time; a large fleet is saved less often."""
FORMAT = 7


class Checkpoint:
    """One file. There is no random state to keep: noise is a function of seed and step.

    Args:
        path: where; the folder is made when it is needed.
        seconds: at least so long between one and the next.
        tell: given a sentence where the disk does not take one (training goes on, and the next is tried), and where one
            cannot be continued (its runs start again).
    """

    def __init__(self, path: Path, seconds: float = SECONDS, tell: Callable[[str], None] = lambda _: None) -> None:
        self.path, self.seconds, self.tell = path, seconds, tell
        self._last, self._took = time.monotonic(), 0.0

    def due(self) -> bool:
        return time.monotonic() - self._last >= max(self.seconds, self._took / SHARE)

    def save(self, fleet: "Fleet") -> None:
        """Write it, where the disk takes it. The one before stays until this one is whole."""
        start = time.monotonic()
        packed: dict[str, Any] = {name: tensor.detach().cpu().numpy() for name, tensor in state(fleet).items()}
        for number, (_, row) in enumerate(fleet.history):
            packed |= {f"history/{number}/{name}": values for name, values in row.items()}
        head = {
            "format": FORMAT,
            "runs": [config.run_id for config in fleet.members],
            "device": fleet.device.type,
            "source": fleet.sources,
            "step": fleet.step,
            "seconds": fleet.seconds,
            "history_steps": [step for step, _ in fleet.history],
        }
        packed["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with writing(self.path) as stream:
                np.savez(stream, **packed)
        except OSError as error:
            with suppress(OSError):
                self.path.parent.rmdir()
            self.tell(_refused(self.path.parent, error))
        finally:
            self._last = time.monotonic()
            self._took = self._last - start

    def restore(self, fleet: "Fleet") -> bool:
        """Take up where a checkpoint of the same runs left off; False, and nothing changed, where none fits."""
        if not self.path.exists():
            return False
        try:
            head, arrays = _read(self.path)
        except ValueError as error:
            head, arrays, why = {}, {}, str(error)
        else:
            if head["format"] == FORMAT and head["runs"] != [config.run_id for config in fleet.members]:
                return False
            why = _unfit(head, arrays, fleet)
        if why:
            self.tell(f"the checkpoint {self.path} cannot be continued ({why}): its runs start again")
            return False
        for name, tensor in state(fleet).items():
            tensor.copy_(torch.from_numpy(arrays[name]))
        fleet.step, fleet.earlier = head["step"], head["seconds"]
        for number, step in enumerate(head["history_steps"]):
            prefix = f"history/{number}/"
            row = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
            fleet.history.append((step, row))
        return True

    def remove(self) -> None:
        """Remove it as far as the disk lets us: what is left over is tidied up by the next process."""
        with suppress(OSError):
            self.path.unlink()


def runs_of(path: Path) -> list[str] | None:
    """The run ids a checkpoint holds, in their order; None where the file is no checkpoint."""
    # Opened here, because numpy leaves open what it fails to read.
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as stored:
                return list(dict.fromkeys(json.loads(stored["head"].tobytes())["runs"]))
        except Exception:
            # What numpy, zipfile and json raise for damaged bytes has no end; none of it matters here.
            return None


def state(fleet: "Fleet") -> dict[str, Tensor]:
    """What training changes, [runs, ...] each."""
    kinds = {
        "parameters": fleet.parameters,
        "buffers": fleet.buffers,
        "mean": fleet.optimiser.mean,
        "square": fleet.optimiser.square,
        "taus": fleet.taus,
    }
    named = {f"{kind}/{name}": tensor for kind, tensors in kinds.items() for name, tensor in tensors.items()}
    if fleet.rules:
        named |= fleet.rules.state
        named |= {f"last/{site}/{tau}": of for site, last in enumerate(fleet.rules.last) for tau, of in last.items()}
    return {**named, "loss_sum": fleet.loss_sum, "bad_step": fleet.bad_step, "untrained": fleet.untrained}


def _unfit(head: dict[str, Any], arrays: dict[str, Any], fleet: "Fleet") -> str:
    """Why a checkpoint of these runs cannot be continued; "" where it can."""
    if head["format"] != FORMAT:
        return "it was made by another version of dst-lab"
    if head["device"] != fleet.device.type:
        return f"it was made on {head['device']}, which draws other random numbers"
    if head["source"] != fleet.sources:
        return "the module of its task, estimator or rule was changed since"
    for name, tensor in state(fleet).items():
        array = arrays.get(name)
        if array is None or array.shape != tensor.shape or torch.from_numpy(array).dtype != tensor.dtype:
            return "its tensors are not those of these runs"
    return ""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Head and arrays; ValueError, with the reason, where the file is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(arrays.pop("head").tobytes())
        return {"format": 0, **head}, arrays
    except Exception as error:
        # As in `runs_of`: what damaged bytes make numpy, zipfile and json raise has no end.
        raise ValueError(f"it is damaged: {error}") from error


def folder_of(store: Path) -> Path:
    """The folder of a store's checkpoints. It lies next to the file itself, not next to a link to the file."""
    file = resolved(store) if store.is_symlink() else store
    return file.with_name(f"{file.name}.checkpoints")


class Checkpoints:
    """Where the chunks of a plan are saved while they are trained.

    Args:
        folder: made when it is needed, removed when it is empty.
        seconds: between one checkpoint and the next.
        tell: given a sentence where the disk takes none, and where one cannot be continued; each sentence once.
    """

    def __init__(self, folder: Path, seconds: float = SECONDS, tell: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self.seconds = folder, seconds
        self._tell = cache(tell)  # of many chunks on a full disk one is named

    def of(self, runs: Sequence[str]) -> Checkpoint:
        """The checkpoint of a chunk with these runs, in this order."""
        return Checkpoint(self.folder / f"{_name(runs)}.npz", self.seconds, self._tell)

    def started(self, pending: Collection[str]) -> list[list[str]]:
        """The chunks saved here that are still wanted whole, as they were put together."""
        chunks = [runs for path, runs in self._saved() if runs and path.stem == _name(runs)]
        return [runs for runs in chunks if all(run in pending for run in runs)]

    def tidy(self, finished: Collection[str]) -> None:
        """Remove what cannot be continued: what killed processes left half-written, damaged files, and chunks of
        which a run is already recorded (the process was killed in between, or the plan changed)."""
        saved = self._saved()
        for path in (path for path, runs in saved if not runs):
            self._tell(f"the checkpoint {path} is damaged: its runs start again")
        over = [path for path, runs in saved if not runs or any(run in finished for run in runs)]
        for path in (*over, *self.folder.glob("*.part")):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def made(self) -> Path | None:
        """The folder, which is there now; None where it cannot be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._tell(_refused(self.folder, error))
            return None
        return self.folder.absolute()

    def _saved(self) -> list[tuple[Path, list[str] | None]]:
        saved = []
        for path in sorted(self.folder.glob("*.npz")):
            with suppress(OSError):
                saved.append((path, runs_of(path)))
        return saved


def _refused(folder: Path, error: OSError) -> str:
    """The sentence about a disk that takes no checkpoint."""
    return (
        f"no checkpoint could be written in {folder} ({error.strerror or error}); training goes on, but if it is "
        "interrupted these runs start again"
    )


def _name(runs: Sequence[str]) -> str:
    return sha256(" ".join(runs).encode()).hexdigest()[:16]
