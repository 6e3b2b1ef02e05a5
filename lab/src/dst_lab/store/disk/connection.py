"""Connections to the file of a store: how it is read and written, and what it looks like at rest.

While it is written, the store has a log (WAL) where the file system allows one. At rest it is a plain SQLite file
with nothing beside it, so that it can be read from a read-only folder, sent by mail or committed.
"""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from weakref import WeakSet

from dst_lab.store.disk.header import is_store
from dst_lab.store.disk.side_files import side_files
from dst_lab.store.errors import StoreError, explained, sentence

# Seconds to wait for readers and for the log to be folded before saying that the store is busy.
_PATIENCE = 10.0


class Connection(sqlite3.Connection):
    """An SQLite connection that this process knows to be open."""

    inode: tuple[int, int] = (0, 0)

    def close(self) -> None:
        super().close()
        _live.discard(self)


_live: WeakSet[Connection] = WeakSet()


def exists(path: Path) -> bool:
    """True where there is a store at `path` that can be opened here; `StoreError` for a file that is none.

    A file this process has open is not looked at again: closing any descriptor of a file drops the POSIX locks that
    SQLite holds on it in the same process, and those locks keep its log alive.
    """
    with suppress(OSError):
        if any(connection.inode == _inode(path) for connection in _live):
            return True
    return is_store(path)


def connect_reader(path: Path) -> Connection:
    """A connection that never changes the store."""
    with explained(path):
        try:
            return _probed(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise
            wal, _, journal = side_files(path)
            if journal.exists():
                # A writer was killed without a log: only a connection that may write can undo its last page writes.
                connection = _probed(path, "mode=rw")
                connection.execute("PRAGMA query_only=ON")
                return connection
            if wal.exists() and wal.stat().st_size:
                raise
            # The file alone is whole, but says that it has a log, and the folder does not let SQLite make one.
            return _probed(path, "mode=ro&immutable=1")


def connect_writer(path: Path) -> Connection:
    """The connection of the one writer: checked, durable, with a log where that works. Hold the `Lock`."""
    with explained(path):
        try:
            return _prepared(path, log=True)
        except sqlite3.OperationalError as error:
            # A log needs shared memory, which some file systems lack. If it was not that, the first error tells more.
            try:
                return _prepared(path, log=False)
            except sqlite3.OperationalError:
                raise error from None


def close_writer(connection: Connection) -> None:
    """Close, leaving one plain file, unless a reader is still there: then SQLite tidies up next time."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


def _prepared(path: Path, *, log: bool) -> Connection:
    connection = _connect(path, "mode=rw")
    try:
        if not log:
            # Alone on the file, SQLite needs no shared memory even to read a log that is already there.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        check_whole(connection, path)
        (mode,) = connection.execute(f"PRAGMA journal_mode={'WAL' if log else 'DELETE'}").fetchone()
        connection.execute("PRAGMA locking_mode=NORMAL")
        # Without a log, a commit is the removal of the journal, and only EXTRA waits for that too.
        connection.execute(f"PRAGMA synchronous={'FULL' if mode == 'wal' else 'EXTRA'}")
        # On macOS an ordinary fsync does not reach the disk; elsewhere this changes nothing.
        connection.execute("PRAGMA fullfsync=ON")
        connection.execute("PRAGMA foreign_keys=ON")
        # What is removed or gives way is gone; not every SQLite is built to see to that.
        connection.execute("PRAGMA secure_delete=ON")
        # Finds a file that may not be written now, rather than after an hour of training. To begin is not enough:
        # on a file that it can only read, SQLite begins all the same.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE provenance SET body = body WHERE id = ''")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` where the pages of the store at `path` do not hang together: rows may be passed over unseen.

    Reads every page: for 40 MiB a tenth of a second.
    """
    (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if finding != "ok":
        reason = " ".join(finding.replace("*** in database main ***", "").split())
        raise StoreError(sentence(path, sqlite3.DatabaseError(f"malformed: {reason}")))


def copy_into(connection: sqlite3.Connection, path: Path) -> None:
    """Write what a connection sees now to a new file at `path`, without the room that removed rows left."""
    try:
        connection.execute("VACUUM INTO ?", (os.fspath(path),))
    except UnicodeEncodeError:  # SQL cannot say a name that is no UTF-8
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            copy.execute("VACUUM")


def _probed(path: Path, query: str) -> Connection:
    """A connection that has read something: SQLite opens a file only when it is first asked."""
    connection = _connect(path, query)
    try:
        connection.execute("SELECT count(*) FROM provenance").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, query: str) -> Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{query}", uri=True, timeout=_PATIENCE, isolation_level=None, factory=Connection
    )
    connection.inode = _inode(path)
    connection.text_factory = as_text
    _live.add(connection)
    return connection


def as_text(raw: bytes) -> str:
    """A text of the store. A damaged one is then found by its fingerprint, and keeps no other row from being read."""
    return raw.decode(errors="surrogateescape")


def _inode(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
