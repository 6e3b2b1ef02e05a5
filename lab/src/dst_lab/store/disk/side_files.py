"""The files that SQLite keeps beside a database, and a store that is put in place of another."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dst_lab.replace import flush, replacing


def side_files(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database while it is in use."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


@contextmanager
def replacing_store(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a store to, which takes the place of `path` when the block ends well."""
    with replacing(path) as draft:
        yield draft
        flush(draft)
        # A log left by a killed writer belongs to the old file; SQLite would replay it into the new one.
        for side in side_files(path):
            side.unlink(missing_ok=True)
