"""Checkpoints of a fleet: atomic, without pickle, and enough to go on as if nothing had happened."""

import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dst_lab.store import run_id

if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

SECONDS = 60.0
SHARE = 0.01
"""Saving may take this share of the time; a large fleet is saved less often."""
FORMAT = 1


class Checkpoint:
    """One file beside the store. There is no random state to keep: noise is a function of seed and step."""

    def __init__(self, path: Path, seconds: float = SECONDS) -> None:
        self.path, self.seconds = path, seconds
        self._last, self._took = time.monotonic(), 0.0

    def due(self) -> bool:
        return time.monotonic() - self._last >= max(self.seconds, self._took / SHARE)

    def save(self, fleet: "Fleet") -> None:
        """Write everything under another name, force it to the disk, then put it in place."""
        begun = time.monotonic()
        arrays: dict[str, Any] = {"loss_sum": fleet.loss_sum, "bad_step": fleet.bad_step}
        for kind, tensors in _state(fleet).items():
            arrays |= {f"{kind}/{name}": tensor for name, tensor in tensors.items()}
        packed = {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}
        for number, (_, row) in enumerate(fleet.history):
            packed |= {f"history/{number}/{name}": values for name, values in row.items()}
        head = {
            "format": FORMAT,
            "runs": [run_id(config.to_dict()) for config in fleet.configs],
            "step": fleet.step,
            "seconds": fleet.seconds,
            "history_steps": [step for step, _ in fleet.history],
        }
        packed["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                np.savez(file, **packed)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)
        self._last = time.monotonic()
        self._took = self._last - begun

    def restore(self, fleet: "Fleet") -> bool:
        """Take up where a checkpoint of the same runs left off; False where there is none that fits."""
        loaded = _read(self.path)
        if loaded is None:
            return False
        head, arrays = loaded
        if head["runs"] != [run_id(config.to_dict()) for config in fleet.configs]:
            return False
        for kind, tensors in _state(fleet).items():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(arrays[f"{kind}/{name}"]))
        fleet.loss_sum.copy_(torch.from_numpy(arrays["loss_sum"]))
        fleet.bad_step.copy_(torch.from_numpy(arrays["bad_step"]))
        fleet.step, fleet.seconds = head["step"], head["seconds"]
        for number, step in enumerate(head["history_steps"]):
            prefix = f"history/{number}/"
            row = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
            fleet.history.append((step, row))
        return True

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def runs_of(path: Path) -> list[str] | None:
    """The run ids a checkpoint holds, or None where the file is no whole checkpoint."""
    loaded = _read(path)
    return loaded[0]["runs"] if loaded else None


def _state(fleet: "Fleet") -> dict[str, dict[str, torch.Tensor]]:
    return {"parameters": fleet.parameters, "mean": fleet.adam.mean, "square": fleet.adam.square}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Head and arrays; None where there is no file, it is damaged (training then starts anew) or of another format."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (FileNotFoundError, ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    head = json.loads(arrays.pop("head").tobytes())
    return (head, arrays) if head.get("format") == FORMAT else None
