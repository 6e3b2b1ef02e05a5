"""Look at the first 100 bytes of a file, before SQLite does: opening a file with SQLite may already change it."""

import stat
import struct
import time
from pathlib import Path

from dst_lab.replace import STORE_MAGICS
from dst_lab.store.disk.schema import APPLICATION_ID, FORMAT
from dst_lab.store.disk.side_files import side_files
from dst_lab.store.errors import RESTORE, StoreError

_MAGIC, _ = STORE_MAGICS
_SIZE = 100


def is_store(path: Path) -> bool:
    """True for a store that can be opened here, False where there is no file or an empty one; else `StoreError`."""
    for patience in (0.05, 0.2, None):
        try:
            head, size = _read(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
        if size == 0:
            return False
        _check_kind(path, head)
        missing = _missing_bytes(head, size)
        # A live writer may be half way through folding its log into the file; the log then holds the rest.
        if not missing or any(side.exists() for side in side_files(path)):
            return True
        if patience:
            time.sleep(patience)
    raise StoreError(
        f"{path} is damaged: it was cut short, {missing} bytes are missing at its end. {RESTORE} "
        "The file was left as it is."
    )


def _read(path: Path) -> tuple[bytes, int]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a file: a store is one file. Give the path of a file.")
    with open(path, "rb") as file:
        return file.read(_SIZE), path.stat().st_size


def _check_kind(path: Path, head: bytes) -> None:
    if not head.startswith(_MAGIC[: len(head)]):
        raise StoreError(
            f"{path} is not a dst store: it begins with {head[:16]!r}, a store with {_MAGIC!r}. "
            "Give another path; the file was left as it is."
        )
    if len(head) < _SIZE:
        raise StoreError(f"{path} is damaged: only {len(head)} bytes are left of it. {RESTORE}")
    (version,) = struct.unpack_from(">I", head, 60)
    (application,) = struct.unpack_from(">I", head, 68)
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path} is not a dst store: it is an SQLite file of another program (application id "
            f"{application:#010x}, a store has {APPLICATION_ID:#010x}). Give another path; the file was left as it is."
        )
    if version != FORMAT:
        advice = (
            "Upgrade dst-lab to read it"
            if version > FORMAT
            else "It is damaged: restore it from a copy, or train its runs again"
        )
        raise StoreError(
            f"{path} is a dst store of format {version}, and this version reads format {FORMAT}. {advice}; "
            "the file was left as it is."
        )


def _missing_bytes(head: bytes, size: int) -> int:
    """How many bytes the file is short of the pages that its header counts."""
    (page,) = struct.unpack_from(">H", head, 16)
    (pages,) = struct.unpack_from(">I", head, 28)
    return max(0, pages * (65536 if page == 1 else page) - size)
