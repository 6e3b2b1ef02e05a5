"""What was trained, beside the store: one safetensors file per run, in a folder named after the store.

    runs.sqlite  ->  runs.sqlite.networks/RUN.safetensors

A file says which run it is of, which recorded result it belongs to, and the SHA-256 of all that it holds; everything is
checked before any of it is used. Nothing is pickled: reading runs no code.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.replace import WriteError, write_bytes
from dst_lab.store.errors import SAFE, StoreError

FORMAT = "dst-network 1"
Tensors = Mapping[str, npt.NDArray[Any]]
_ID = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network: its tensors by name, and the `digest` of the recorded result that it belongs to."""

    run: str
    digest: str
    tensors: Tensors


def folder_of(store: str | os.PathLike[str]) -> Path:
    """Where the networks of a store lie."""
    return Path(f"{os.fspath(store)}.networks")


def path_of(store: str | os.PathLike[str], run: str) -> Path:
    """The file of a run."""
    return folder_of(store) / f"{run}.safetensors"


def kept(store: str | os.PathLike[str], runs: Iterable[str]) -> set[str]:
    """Those of the runs that have a file."""
    try:
        names = set(os.listdir(folder_of(store)))
    except OSError:
        return set()
    return {run for run in runs if f"{run}.safetensors" in names}


def kept_of(store: str | os.PathLike[str], digests: Mapping[str, str]) -> set[str]:
    """Those of the runs, given with the digests of their results, that have a file of this result, or one of which
    that cannot be read."""
    return {run for run in kept(store, digests) if record_of(path_of(store, run)) in (digests[run], "")}


def has(store: str | os.PathLike[str], run: str) -> bool:
    """True where the run has a file."""
    return path_of(store, run).is_file()


def has_of(store: str | os.PathLike[str], run: str, digest: str) -> bool:
    """True where the run has a file that says it belongs to this result."""
    return has(store, run) and record_of(path_of(store, run)) == digest


def encoded(network: Network) -> bytes:
    """The content of a network's file."""
    from safetensors.numpy import save

    tensors = {name: _plain(array) for name, array in network.tensors.items()}
    about = {"format": FORMAT, "run": network.run, "record": network.digest}
    content: bytes = save(tensors, metadata={**about, "sha256": _digest(tensors, about)})
    return content


def write(store: str | os.PathLike[str], network: Network) -> None:
    """Put a network into the folder; it appears whole or not at all."""
    path = path_of(store, network.run)
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, encoded(network))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of writing the file of a network into a `StoreError`."""
    try:
        yield
    except WriteError as error:
        raise StoreError(f"{error.sentence} The run is not recorded without its network; {SAFE}.") from error
    except OSError as error:
        raise StoreError(f"{path} could not be written ({error.strerror or error}); {SAFE}.") from error


def read(store: str | os.PathLike[str], run: str) -> Network:
    """A run's network, checked; `StoreError` where there is none or the file is damaged."""
    from safetensors import SafetensorError, safe_open

    path = path_of(store, run)
    if not path.is_file():
        raise StoreError(
            f"the network of run {run} is not there: there is no {path}. If it was kept, put that folder beside the "
            "store again; else train the run with --keep into another store (one that has ended is not trained again), "
            "and load it from there."
        )
    try:
        with safe_open(path, framework="np") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{_damaged(path)} ({error}).") from error
    expected = about.pop("sha256", "")
    if about.get("format") != FORMAT and str(about.get("format", "")).startswith(FORMAT.split()[0]):
        raise StoreError(f"{path} is of another format ({about['format']}): upgrade dst-lab.")
    if _digest(tensors, about) != expected:
        raise StoreError(f"{_damaged(path)} (what it holds does not match its checksum).")
    if about["run"] != run:
        raise StoreError(f"{path} is the network of run {about['run']}, under the name of another: put it back.")
    return Network(run, about["record"], tensors)


def read_for(store: str | os.PathLike[str], run: str, digest: str) -> Network:
    """A run's network, checked, and `StoreError` also where it belongs to another result than this one."""
    network = read(store, run)
    if network.digest != digest:
        raise StoreError(
            f"{path_of(store, run)} is of another training of run {run} than the one recorded in {os.fspath(store)}: "
            "restore the file that belongs to it, or delete it."
        )
    return network


def read_among(stores: Sequence[Path], run: str, digest: str) -> Network:
    """The same from the first of several stores that has the network of this result."""
    if len(stores) == 1:
        return read_for(stores[0], run, digest)
    keeping = [store for store in stores if has(store, run)]
    places = [store for store in keeping if record_of(path_of(store, run)) in (digest, "")]
    if keeping and not places:
        raise StoreError(
            f"the network of run {run} was not kept of the result that counts here, the first slice's: "
            f"{path_of(keeping[0], run)} is of another result of the run."
        )
    places = places or [*stores]
    for place in places[:-1]:
        with suppress(StoreError):  # another has one too
            return read_for(place, run, digest)
    return read_for(places[-1], run, digest)


def remove(store: str | os.PathLike[str], runs: Iterable[str]) -> None:
    """Remove the networks of these runs, where they have one."""
    for run in kept(store, runs):
        path_of(store, run).unlink(missing_ok=True)


def others(store: str | os.PathLike[str], digests: Mapping[str, str]) -> set[str]:
    """The runs whose networks belong to none of these results, given by the ids of their runs."""
    with suppress(FileNotFoundError):
        names = (name.partition(".") for name in os.listdir(folder_of(store)))
        runs = [run for run, _, kind in names if kind == "safetensors" and is_id(run)]
        return {run for run in runs if record_of(path_of(store, run)) != digests.get(run)}
    return set()


def is_id(run: str) -> bool:
    """True where a network can be of it."""
    return _ID.fullmatch(run) is not None


def record_of(path: Path) -> str:
    """The digest of the result that a file says it belongs to; empty where it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return str((file.metadata() or {}).get("record", ""))
    except (SafetensorError, OSError, ValueError):
        return ""


def _damaged(path: Path) -> str:
    return f"{path} is damaged: restore it from a copy, or delete it (the run's record is whole without it)"


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.require(array, array.dtype.newbyteorder("<"), ["C"])


def _digest(tensors: Tensors, about: Mapping[str, str]) -> str:
    """SHA-256 of the names, types, shapes and bytes of all tensors, and of what the file says about them."""
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
