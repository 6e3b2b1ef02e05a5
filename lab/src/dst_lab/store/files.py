"""The file of a store: how it is made, opened by readers and by the one writer, checked, and compressed.

SQLite keeps it whole: a log (WAL) while it is written, transactions, and its own locks. A store that was closed is one
plain file, so that it can be read from a read-only folder, sent by mail or committed.
"""

import lzma
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from dst_lab.replace import TABLE_ENDING, is_table
from dst_lab.store import table
from dst_lab.store.errors import RESTORE, SAFE, StoreError, explained
from dst_lab.store.rows import BARE_FINGERPRINTS, SCHEMA, encode, insert

APPLICATION_ID = int.from_bytes(b"dsts", "big")
FORMAT = 1
COMPRESSED = ".xz"
_ENDINGS = (".sqlite", f".sqlite{COMPRESSED}")
_PAGE_SIZE = 1024  # a run takes a few kilobytes: on pages of 4096 bytes, up to a fifth of the file would be padding
_PATIENCE = 10.0
"""Seconds to wait for another process before saying that the store is busy."""


def has_content(path: Path) -> bool:
    """True where there is a file with anything in it; `StoreError` where there is something else."""
    with explained(path):
        try:
            if path.exists() and not path.is_file():
                raise StoreError(f"{path} is not a file: a store is one file. Give the path of a file.")
            return path.is_file() and path.stat().st_size > 0
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}.") from error


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that does not change the store; `StoreError` unless `path` is one that can be read here."""
    if not has_content(path):
        raise StoreError(f"there is no store at {path}. Give the path of one; training with --store makes it.")
    with explained(path):
        try:
            return _read_only(path, "ro")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise
        # A writer that was killed leaves a log, which SQLite may have to write to before the store can be read.
        has_log = path.with_name(f"{path.name}-wal").exists()
        try:
            return _read_only(path, "rw")
        except sqlite3.OperationalError:
            if has_log:
                raise
        # The file says that it had a log, and its folder may not be written: the file alone is whole.
        return _read_only(path, "ro&immutable=1")


@contextmanager
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that records durably; it makes the tables where there are none. Hold `locked` meanwhile.

    At the end one plain file is left, unless a reader is still there: then the log stays for the next process.
    """
    with explained(path), closing(_connect(path, "rwc")) as connection:
        connection.execute(f"PRAGMA page_size={_PAGE_SIZE}")
        connection.execute("PRAGMA foreign_keys=ON")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            numbers = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT};"
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {BARE_FINGERPRINTS} {numbers} COMMIT;")
        _check_kind(connection, path)
        connection.execute(BARE_FINGERPRINTS)
        # Finds a file that may not be written now, rather than after an hour of training.
        connection.execute("UPDATE provenance SET body = body WHERE id = ''")
        with suppress(sqlite3.OperationalError):  # some file systems have no shared memory, which a log needs
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=EXTRA")
        try:
            yield connection
        finally:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA busy_timeout=0")
                connection.execute("PRAGMA journal_mode=DELETE")


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` where the pages of a store do not hang together: runs may be missing from what is read.

    Reads every page: for 40 MiB a tenth of a second.
    """
    with explained(path):
        (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if finding != "ok":
            reason = " ".join(finding.replace("*** in database main ***", "").split())
            raise sqlite3.DatabaseError(f"malformed: {reason}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only writer of the store at `path`, by SQLite's own lock on an empty database of another name.

    It ends with its process, however that ends; SQLite's log would let a second writer in between two transactions.
    """
    lock = path.with_name(f"{path.name}-lock")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist. Make it first.")
    while True:
        try:
            connection = sqlite3.connect(lock, timeout=0, isolation_level=None)
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise StoreError(
                    f"{path} is being written by another process. Wait for it to end, or stop it; reading, `dst copy` "
                    "and `dst show` work meanwhile."
                ) from error
            raise StoreError(
                f"{path} cannot be written: the lock {lock} could not be made ({error}); {SAFE}. Make room or make the "
                "folder writable, or work on a copy elsewhere, made with `dst copy`."
            ) from error
        if lock.exists():  # else its last holder removed it in between, and the next process would make another
            break
        connection.close()
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        connection.close()


def slices(folder: Path) -> list[Path]:
    """The stores in a folder that is read as one, by name; `StoreError` where there is none."""
    files = sorted(
        path for path in folder.iterdir() if (path.name.endswith(_ENDINGS) and path.is_file()) or is_table(path)
    )
    if not files:
        raise StoreError(
            f"{folder} is not a file, and no folder of slices either: it holds no "
            f"*{' and no *'.join((*_ENDINGS, TABLE_ENDING))}."
        )
    return files


def compress(path: Path) -> None:
    """Compress a file in its place."""
    small = path.with_name(f"{path.name}{COMPRESSED}")
    try:
        with open(path, "rb") as source, lzma.open(small, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        small.replace(path)
    finally:
        small.unlink(missing_ok=True)


@contextmanager
def plain(path: Path) -> Iterator[Path]:
    """The store as a plain file: `path` itself or, of a compressed one or a table, a temporary file for the time of the
    block."""
    if is_table(path):
        with TemporaryDirectory(prefix="dst-") as folder:
            target = Path(folder) / "runs.sqlite"
            with writer(target) as connection:
                connection.execute("BEGIN")  # one for all: each would wait for the disk
                for record in table.read(path):
                    insert(connection, encode(record))
                connection.execute("COMMIT")
            yield target
        return
    if path.suffix != COMPRESSED:
        yield path
        return
    if not has_content(path):
        raise StoreError(f"there is no store at {path}. Give the path of one; `dst copy` makes it.")
    with TemporaryDirectory(prefix="dst-") as folder:
        target = Path(folder) / path.stem
        try:
            with lzma.open(path) as packed, open(target, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (lzma.LZMAError, EOFError) as error:
            raise StoreError(f"{path} is damaged, or no store made by `dst copy` ({error}). {RESTORE}") from error
        except OSError as error:
            raise StoreError(f"{path} could not be unpacked into {folder} ({error.strerror or error}).") from error
        yield target


def _read_only(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        connection.execute("PRAGMA query_only=ON")
        _check_kind(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
    # A damaged text is found by its fingerprint, and keeps no other row from being read.
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    return connection


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` unless the file is a store of the format that is read here."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        other = "an SQLite file of another program" if tables else "empty inside"
        raise StoreError(f"{path} is not a dst store: it is {other}. Give another path; the file was left as it is.")
    if version != FORMAT:
        advice = "Upgrade dst-lab to read it" if version > FORMAT else f"It is damaged. {RESTORE}"
        raise StoreError(
            f"{path} is a dst store of format {version}, and this version reads format {FORMAT}. {advice} The file was "
            "left as it is."
        )
    connection.execute("SELECT count(*) FROM provenance").fetchone()
