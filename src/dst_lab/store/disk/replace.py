"""Files that appear whole or not at all: written under another name, flushed, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dst_lab.store.errors import SAFE, StoreError


def side_files(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database while it is in use."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; when the block ends well, what was written takes the place of `path`."""
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist. Make it first.")
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.unlink(missing_ok=True)
        yield draft
        _flush(draft)
        # A log left by a killed writer belongs to the old file; SQLite would replay it into the new one.
        for side in side_files(path):
            side.unlink(missing_ok=True)
        os.replace(draft, path)
        _flush(path.parent)
    except OSError as error:
        raise StoreError(f"{path} could not be written ({error.strerror or error}); {SAFE}.") from error
    finally:
        for left in (draft, *side_files(draft)):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until the file is on the disk, or the names in the folder where the system can wait for those."""
    if path.is_dir():
        with suppress(OSError):
            _fsync(path, os.O_RDONLY)
    else:
        _fsync(path, os.O_RDWR)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
