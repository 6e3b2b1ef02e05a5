"""What was trained, kept in a folder named after the store: one safetensors file per result.

    runs.sqlite  ->  runs.sqlite.networks/RUN-DIGEST.safetensors

DIGEST is the fingerprint of the recorded result, so a file belongs to one record for ever: it is written before the
record, and a process that is killed in between leaves a file that no record names. A file says which run and result it
is of, and the SHA-256 of all that it holds; everything is checked before any of it is used. Nothing is pickled.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dst_lab.replace import WriteError, write_bytes
from dst_lab.store.errors import SAFE, StoreError

FORMAT = "dst-network 1"
Tensors = Mapping[str, npt.NDArray[Any]]


def folder_of(store: Path) -> Path:
    """The folder of a store's networks."""
    return Path(f"{store}.networks")


def path_of(store: Path, run: str, digest: str) -> Path:
    """The file of a result."""
    return folder_of(store) / f"{run}-{digest}.safetensors"


def write(store: Path, run: str, digest: str, network: Tensors) -> None:
    """Put the network of a result into the folder of a store; it appears whole or not at all."""
    path = path_of(store, run, digest)
    tensors = {name: np.require(array, array.dtype.newbyteorder("<"), ["C"]) for name, array in network.items()}
    about = {"format": FORMAT, "run": run, "record": digest}
    try:
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, save(tensors, metadata={**about, "sha256": _digest(tensors, about)}))
    except WriteError as error:
        raise StoreError(f"{error} The run is not recorded without its network; {SAFE}.") from error
    except OSError as error:
        raise StoreError(f"{path.parent} could not be made ({error.strerror or error}); {SAFE}.") from error


def read(path: Path, run: str, digest: str) -> Tensors:
    """The network of a result from its file; `StoreError` where that is damaged, or of something else."""
    damaged = f"{path} is damaged: restore it from a copy, or delete it (the run's record is whole without it)"
    try:
        with safe_open(path, framework="np") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{damaged} ({error}).") from error
    expected = about.pop("sha256", "")
    if about.get("format") != FORMAT and about.get("format", "").startswith("dst-network"):
        raise StoreError(f"{path} is of another format ({about['format']}): upgrade dst-lab.")
    if _digest(tensors, about) != expected:
        raise StoreError(f"{damaged} (its checksum does not match).")
    if (about["run"], about["record"]) != (run, digest):
        raise StoreError(
            f"{path} is the network of result {about['record']} of run {about['run']}, not of result {digest} of run "
            f"{run}: put the file that belongs to it there, or delete it."
        )
    return tensors


def remove(store: Path, run: str, *, keep: str = "") -> None:
    """Remove the files of a run, but for that of the result `keep`."""
    for path in folder_of(store).glob(f"{run}-*.safetensors"):
        if path != path_of(store, run, keep):
            path.unlink(missing_ok=True)


def _digest(tensors: Tensors, about: Mapping[str, str]) -> str:
    """SHA-256 of the names, types, shapes and bytes of all tensors, and of what the file says about them."""
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
