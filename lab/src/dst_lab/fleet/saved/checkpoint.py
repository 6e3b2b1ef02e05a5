"""Checkpoints of a fleet: atomic, without pickle, and enough to go on as if nothing had happened."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dst_lab.fleet.saved.provenance import own_sources
from dst_lab.fleet.saved.recording import Stopped
from dst_lab.replace import writing
from dst_lab.store import run_id

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

SECONDS = 60.0
SHARE = 0.01
"""Saving may take this share of the time; a large fleet is saved less often."""
FORMAT = 6


class Checkpoint:
    """One file. There is no random state to keep: noise is a function of seed and step.

    Args:
        path: where; the folder is made when it is needed.
        seconds: at least so long between one and the next.
        refused: called with the error where the disk does not take one. Training goes on, and the next is tried.
        spoilt: called with the path and the reason where one cannot be gone on from. Its runs start again.
    """

    def __init__(
        self,
        path: Path,
        seconds: float = SECONDS,
        refused: Callable[[OSError], None] | None = None,
        spoilt: Callable[[Path, str], None] | None = None,
    ) -> None:
        self.path, self.seconds, self.refused, self.spoilt = path, seconds, refused, spoilt
        self._last, self._took = time.monotonic(), 0.0

    def due(self) -> bool:
        return time.monotonic() - self._last >= max(self.seconds, self._took / SHARE)

    def save(self, fleet: "Fleet") -> bool:
        """True where the disk took it. The one before stays until this one is whole."""
        start = time.monotonic()
        packed = {name: tensor.detach().cpu().numpy() for name, tensor in state(fleet).items()}
        for number, (_, row) in enumerate(fleet.history):
            packed |= {f"history/{number}/{name}": values for name, values in row.items()}
        head = {
            "format": FORMAT,
            "runs": _runs(fleet),
            "device": fleet.device.type,
            "source": _sources(fleet),
            "alive": fleet.alive,
            "stopped": sorted(fleet.stopped.items()),
            "step": fleet.step,
            "seconds": fleet.seconds,
            "history_steps": [step for step, _ in fleet.history],
        }
        packed["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        try:
            self._write(packed)
        except OSError as error:
            with suppress(OSError):
                self.path.parent.rmdir()
            if self.refused:
                self.refused(error)
            return False
        finally:
            self._last = time.monotonic()
            self._took = self._last - start
        return True

    def _write(self, packed: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self.path) as stream:
            np.savez(stream, **packed)

    def restore(self, fleet: "Fleet") -> bool:
        """Take up where a checkpoint of the same runs left off; False, and nothing changed, where none fits."""
        if not self.path.exists():
            return False
        try:
            head, arrays = _read(self.path)
        except ValueError as error:
            return self._start_again(keep(self.path), str(error))
        if head["format"] != FORMAT:
            return self._start_again(self.path, "it was made by another version of dst-lab")
        if head["runs"] != _runs(fleet):
            return False
        if head["device"] != fleet.device.type:
            return self._start_again(self.path, f"it was made on {head['device']}, which draws other random numbers")
        if head.get("source", {}) != _sources(fleet):
            return self._start_again(self.path, "the module of its task, estimator or rule was changed since")
        rows = len(fleet.rows_of(head["alive"]))
        if any(_unlike(arrays.get(name), tensor, rows) for name, tensor in state(fleet).items()):
            return self._start_again(self.path, "its tensors are not those of these runs")
        if head["stopped"]:
            fleet.keep(head["alive"])
            fleet.stopped = {run: Stopped(*how) for run, how in head["stopped"]}
        for name, tensor in state(fleet).items():
            tensor.copy_(torch.from_numpy(arrays[name]))
        fleet.step, fleet.earlier = head["step"], head["seconds"]
        for number, step in enumerate(head["history_steps"]):
            prefix = f"history/{number}/"
            row = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
            fleet.history.append((step, row))
        return True

    def _start_again(self, path: Path, why: str) -> bool:
        if self.spoilt:
            self.spoilt(path, why)
        return False

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


def _sources(fleet: "Fleet") -> dict[str, str]:
    return {key: mark for key, (_, mark) in own_sources(type(fleet.task), fleet.members[0].estimator).items()}


def _runs(fleet: "Fleet") -> list[str]:
    return [run_id(config.to_dict()) for config in fleet.members]


def state(fleet: "Fleet") -> dict[str, Tensor]:
    """What training changes, [runs, ...] each."""
    kinds = {
        "parameters": fleet.parameters, "buffers": fleet.buffers, "mean": fleet.optimiser.mean,
        "square": fleet.optimiser.square, "taus": fleet.taus,
    }  # fmt: skip
    named = {f"{kind}/{name}": tensor for kind, tensors in kinds.items() for name, tensor in tensors.items()}
    if fleet.rules:
        named |= fleet.rules.state
        named |= {f"last/{site}/{tau}": of for site, last in enumerate(fleet.rules.last) for tau, of in last.items()}
    return {**named, "loss_sum": fleet.loss_sum, "bad_step": fleet.bad_step, "untrained": fleet.untrained}


def _unlike(array: Any, tensor: Tensor, rows: int) -> bool:
    if array is None or array.shape != (rows, *tensor.shape[1:]):
        return True
    return torch.from_numpy(array).dtype != tensor.dtype


def keep(path: Path) -> Path:
    """Give a damaged checkpoint another name, so that nothing overwrites or removes it; its name then."""
    kept = path.with_name(f"{path.name}.damaged")
    with suppress(OSError):
        path.replace(kept)
        return kept
    return path


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
