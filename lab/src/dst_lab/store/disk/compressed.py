"""A store in one file made with xz, small enough to be committed or sent: read as it is, never written again.

Blobs that are compressed one by one leave nothing for xz to find. So they are first put into the file as they are, all
of them side by side, and xz does it once for all: a sixth less than the sum of the blobs.
"""

import hashlib
import lzma
import os
import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from dst_lab.store.contents import blob
from dst_lab.store.errors import RESTORE, StoreError

SUFFIX = ".xz"


def is_compressed(path: Path) -> bool:
    """True where the name says that a store is compressed."""
    return path.suffix == SUFFIX


def unpacked(path: Path) -> "tuple[TemporaryDirectory[str], Path]":
    """The store inside, as a plain file in a temporary folder, which is the caller's to clean up."""
    folder = TemporaryDirectory(prefix="dst-")
    try:
        plain = Path(folder.name) / path.stem
        with lzma.open(path) as source, open(plain, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except FileNotFoundError:
        folder.cleanup()
        raise StoreError(f"there is no store at {path}. Give the path of one; `dst copy` makes it.") from None
    except (lzma.LZMAError, EOFError) as error:
        folder.cleanup()
        raise StoreError(f"{path} is damaged, or no store made by `dst copy` ({error}). {RESTORE}") from error
    except OSError as error:
        folder.cleanup()
        raise StoreError(f"{path} could not be unpacked into {folder.name} ({error.strerror or error}).") from error
    return folder, plain


def rewrite(path: Path, *, level: int, artefacts_of: Collection[str] | None) -> None:
    """Compress every blob of the plain store at `path` anew, at this level; without artefacts but those of these runs.

    ValueError, with the reason, where a blob is damaged. No other process knows the file yet.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        if artefacts_of is not None:
            keys = [key for key, run in connection.execute("SELECT key, id FROM runs") if run not in artefacts_of]
            connection.executemany("DELETE FROM artefacts WHERE run = ?", [(key,) for key in keys])
        for table in ("histories", "artefacts"):
            bodies = connection.execute(
                f"SELECT runs.id, {table}.rowid, body FROM {table} JOIN runs ON runs.key = {table}.run"
            ).fetchall()
            again = ((_repacked(run, body, level), row) for run, row, body in bodies)
            connection.executemany(f"UPDATE {table} SET body = ? WHERE rowid = ?", again)
        connection.execute("COMMIT")
        connection.execute("VACUUM")


def _repacked(run: str, body: bytes, level: int) -> bytes:
    try:
        return blob.repacked(body, level)
    except ValueError as error:
        raise ValueError(f"malformed: run {run}: {error}") from error


def _digest(stream: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while part := stream.read(1 << 20):
        digest.update(part)
    return digest.digest()


def pack(path: Path) -> None:
    """Compress the file in its place, and see that it unpacks again."""
    small = path.with_name(path.name + SUFFIX)
    try:
        with open(path, "rb") as source, lzma.open(small, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        with lzma.open(small) as unpacked, open(path, "rb") as source:
            if _digest(unpacked) != _digest(source):
                raise ValueError("malformed: what was compressed does not unpack to what it was")
        os.replace(small, path)
    finally:
        small.unlink(missing_ok=True)
