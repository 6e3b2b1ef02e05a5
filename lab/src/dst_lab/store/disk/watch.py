"""A look at whether the file that a writer has open is still the store under its name.

A store can be removed, moved, replaced or written over by others (`rm`, `mv`, `cp`, an editor) while runs are trained
for hours. SQLite would go on writing into a file that nobody sees any more, or mix its pages with those of another.
"""

import os
import sqlite3
from pathlib import Path

from dst_lab.store.disk.side_files import side_files


class VanishedError(Exception):
    """The store is no longer what it was. `intact`: whether what the connection has open is still whole."""

    def __init__(self, what: str, *, intact: bool) -> None:
        super().__init__(what)
        self.intact = intact


class Watch:
    """Compares a store with what it was after the last write of this process, which is its only writer."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._path = path
        status = os.stat(path)
        self._file = (status.st_dev, status.st_ino)
        self._content = (status.st_size, status.st_mtime_ns)
        self._runs = runs_of(connection)

    def moved(self) -> None:
        """Raise `VanishedError` where the name is gone or belongs to another file."""
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise VanishedError(f"is gone ({error.strerror})", intact=True) from error
        if (status.st_dev, status.st_ino) != self._file:
            raise VanishedError("was replaced by another file", intact=True)

    def touched(self) -> bool:
        """True where somebody else has written to the file, or just changed its time."""
        status = os.stat(self._path)
        return (status.st_size, status.st_mtime_ns) != self._content

    def compare(self, connection: sqlite3.Connection) -> None:
        """Raise `VanishedError` where the runs are not those that were there."""
        if runs_of(connection) != self._runs:
            raise VanishedError("was written over by something else", intact=False)

    def remember(self, connection: sqlite3.Connection) -> None:
        """What is there now is as this process wrote it; raise `VanishedError` where it cannot be."""
        self.moved()
        status = os.stat(self._path)
        log = side_files(self._path)[0]
        folded = not (log.exists() and log.stat().st_size)
        (pages,), (page,) = (connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size"))
        if folded and status.st_size != pages * page:
            raise VanishedError("was cut short or written over by something else", intact=False)
        self._content = (status.st_size, status.st_mtime_ns)
        self._runs = runs_of(connection)


def runs_of(connection: sqlite3.Connection) -> tuple[object, ...]:
    """How many runs there are, and the last."""
    (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    last = connection.execute("SELECT key, id FROM runs ORDER BY key DESC LIMIT 1").fetchone()
    return (count, last)
