"""What is there: every data set, where it lies and whether it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .catalogue import DIGITS, SOURCES, DataError, Source
from .integrity import DamagedFileError, unpacked
from .locate import data_root, present
from .prepared import read_header, read_prepared
from .readers import read_digits


@dataclass(frozen=True)
class Entry:
    """A data set: state is "complete", "missing" or "damaged: <reason>"; size counts the bytes that are there."""

    name: str
    where: str
    state: str
    size: int


def inventory(folder: str | os.PathLike[str] | None = None) -> list[Entry]:
    """List the data sets in the folder (or the prepared file) that `load` would read, all verified, none fetched."""
    root = data_root(folder)
    entries = [_digits()]
    if root.is_file():
        entries.append(_prepared(root))
    else:
        entries += [_files(name, source, root) for name, source in SOURCES.items()]
    return entries


def _digits() -> Entry:
    try:
        images, labels = read_digits()
    except DataError:
        return Entry(DIGITS, "embedded", "missing", 0)
    return Entry(DIGITS, "embedded", "complete", images.nbytes + labels.nbytes)


def _files(name: str, source: Source, root: Path) -> Entry:
    files = present(source, root)
    where = next(iter(files.values())).parent if files else root / source.folders[0]
    state = _state(lambda: [unpacked(path, file) for file, path in files.items()])
    if state == "complete" and len(files) < len(source.files):
        state = "missing"
    return Entry(name, str(where), state, sum(path.stat().st_size for path in files.values()))


def _prepared(path: Path) -> Entry:
    name = "levels"

    def read() -> None:
        nonlocal name
        header = read_header(path)
        if header:
            name = f"{header.dataset}, levels of {header.thresholds} thresholds"
        read_prepared(path)

    state = _state(read)
    return Entry(name, str(path), state, path.stat().st_size)


def _state(read: Callable[[], object]) -> str:
    try:
        read()
    except DamagedFileError as error:
        return f"damaged: {error.path.name}: expected {error.expected}, found {error.found}"
    except DataError as error:
        return f"damaged: {error}"
    return "complete"
