"""Saving runs beside a store that vanished while they were trained."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dst_lab.replace import WriteError
from dst_lab.store.contents import networks, rows
from dst_lab.store.disk.connection import Connection, copy_into
from dst_lab.store.disk.schema import create
from dst_lab.store.disk.side_files import replacing_store
from dst_lab.store.errors import StoreError
from dst_lab.store.transfer.merging import insert_all

MOST_KEPT = 256 * 2**20
"""Bytes of rows that a writer keeps in memory: what it wrote itself, in case the file is written over."""


class Kept:
    """The rows that this process has written, of very many the newest, and networks that are not on the disk yet."""

    def __init__(self) -> None:
        self.networks: list[networks.Network] = []
        self._rows: dict[str, rows.StoredRow] = {}
        self._bytes = 0

    def add(self, new: Iterable[rows.StoredRow]) -> None:
        for row in new:
            before = self._rows.pop(row.id, None)
            self._rows[row.id] = row
            self._bytes += row.size - (before.size if before else 0)
        while self._bytes > MOST_KEPT:
            self._bytes -= self._rows.pop(next(iter(self._rows))).size

    def __iter__(self) -> Iterator[rows.StoredRow]:
        return iter(self._rows.values())


def rescue(path: Path, connection: Connection, kept: Kept, *, intact: bool) -> str:
    """Write a store beside `path` with these rows and networks and, where the open file is intact, all that it holds.

    Returns a sentence that says where it is, or why there is none.
    """
    failure = ""
    for target in _targets(path):
        try:
            for network in kept.networks:
                networks.write(target, network)
            count = _write(target, connection, kept, intact=intact)
        except (StoreError, WriteError, sqlite3.Error, OSError) as error:
            failure = f" ({error})"
            continue
        # A merge brings the networks along; a file put in its place would leave them behind.
        how = "join it with" if kept.networks else "put that file in its place, or join it with"
        return (
            f"{count} runs that this process had or trained are saved in {target}: {how} "
            f"`dst merge --store {path} {target}`, and run the same command again."
        )
    return f"The runs that this process had could not be saved{failure}."


def _targets(path: Path) -> Iterator[Path]:
    """Names that are free: beside the store or, where its folder is gone, here, or among temporary files."""
    for folder in (path.parent, Path.cwd, Path(tempfile.gettempdir())):
        with suppress(OSError):
            place = folder if isinstance(folder, Path) else folder()
            for number in range(1, 100):
                name = f"{path.stem}.rescued{f'-{number}' if number > 1 else ''}.sqlite"
                if place.is_dir() and not (place / name).exists():
                    yield place / name
                    break


def _write(target: Path, connection: Connection, kept: Iterable[rows.StoredRow], *, intact: bool) -> int:
    if intact:
        with suppress(sqlite3.Error), replacing_store(target) as draft:
            copy_into(connection, draft)
    if not target.exists():
        create(target)
    return insert_all(target, kept)
