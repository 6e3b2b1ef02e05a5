"""The one writer's hold on the file of a store: transactions, and a look at whether the file is still the one."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dst_lab.store.contents.arrivals import Arrivals
from dst_lab.store.disk.connection import Connection, close_writer, connect_writer
from dst_lab.store.disk.lock import Lock
from dst_lab.store.disk.watch import VanishedError, Watch
from dst_lab.store.errors import StoreError, explained


class Writer:
    """Holds the lock and the connection until it is closed."""

    def __init__(self, path: Path, connection: Connection, lock: Lock) -> None:
        self.path, self.connection = path, connection
        self._lock = lock
        self._watch = Watch(connection, path)

    def close(self) -> None:
        """Close the file, and let the next writer in."""
        try:
            close_writer(self.connection)
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self, arriving: Arrivals | None = None) -> Iterator[Connection]:
        """All or nothing, networks too, then folded into the file, which is looked at before and after."""
        self.check()
        committing, interrupt = False, None
        with explained(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                if arriving:
                    arriving.place()
                committing = True
                self.connection.execute("COMMIT")
            except BaseException as error:
                if isinstance(error, sqlite3.Error) or not committing or self.connection.in_transaction:
                    # After some errors, a full disk among them, SQLite has already rolled back by itself.
                    with suppress(sqlite3.Error):
                        self.connection.execute("ROLLBACK")
                    if isinstance(error, sqlite3.Error):
                        self.check()  # where the file was changed under it, that is what to say
                    raise
                interrupt = error  # heard after the commit was made: what belongs to it comes first
        if arriving:
            arriving.settle()
        self.fold()
        with self._in_place(), explained(self.path):
            self._watch.remember(self.connection)
        if interrupt:
            raise interrupt

    def fold(self) -> bool:
        """Fold the log into the file, so that the file alone is whole; False where a reader kept it from finishing."""
        with explained(self.path):
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def check(self) -> None:
        """Raise `StoreError` unless the file under the path is the one that is open, as it was left."""
        with self._in_place():
            self._watch.moved()
            if not self._watch.touched():
                return
            # What SQLite remembers of its pages may be of a file that is no more: read it anew.
            try:
                self.connection.close()
                self.connection = connect_writer(self.path)
                self._watch.compare(self.connection)
                self._watch.remember(self.connection)
            except (StoreError, sqlite3.Error) as error:
                raise VanishedError("was changed by something else", intact=False) from error

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        try:
            yield
        except VanishedError as error:
            raise StoreError(f"{self.path} {error} while runs were trained; nothing more is recorded.") from error
