"""Every file that the laboratory writes appears whole or not at all, and takes the place of one of its name, but never
that of a store.

A file is written under another name in the same folder, a draft (`.NAME.RANDOM.part`), forced to the disk, and then
renamed.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

STORE_MAGICS = (b"SQLite format 3\0", b"\xfd7zXZ\0")
"""The first bytes of a store, plain and compressed."""
TABLE_ENDING = "runs.csv"
"""How the name of a table of runs ends, which is read like a store; its first line has columns `history.NAME`."""


class WriteError(OSError):
    """A file could not be written."""

    def __str__(self) -> str:
        return f"{self.filename} could not be written ({self.strerror}); nothing was changed."


class RefusedError(WriteError):
    """A file must not be written, or cannot be where it was asked for."""

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise `WriteError` where `path` cannot be written or is a store.

    Call it before the work whose result is to be written: a draft is made in the folder of `path`, and removed again.
    """
    target = resolved(path)
    with _explained(target), _draft(target) as part:
        part.touch(exist_ok=False)
    if target.exists():
        with _explained(target), open(target, "rb") as file:
            is_store = file.read(8).startswith(tuple(magic[:8] for magic in STORE_MAGICS))
        if is_store or is_table(target):
            raise _refusal(target, "is a store, which this would overwrite: give another path.")


def is_table(path: Path) -> bool:
    """True for a file of this name with a column of a metric: what `dst export` writes is none."""
    if not path.name.endswith(TABLE_ENDING) or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.readline(10_000)
    return b"history." in head and not head.startswith(b"SQLite")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write the whole text, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the whole content."""
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a stream of bytes, which become the file when the block ends well."""
    with replacing(path) as part, open(part, "xb") as stream:
        yield stream


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the name of a draft, which takes the place of `path` when the block ends without an error.

    Errors of the system become `WriteError`. A link is followed: the file it leads to is replaced.
    """
    target = resolved(path)
    with _explained(target), _draft(target) as part:
        yield part
        with suppress(OSError):
            shutil.copymode(target, part)
        _flush(part, os.O_RDWR)
        os.replace(part, target)
        with suppress(OSError):  # Windows cannot open a folder
            _flush(target.parent, os.O_RDONLY)


def resolved(path: str | os.PathLike[str]) -> Path:
    """The file that all links lead to; `WriteError` where they lead in a circle."""
    given = Path(path).expanduser()
    try:
        return given.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise _refusal(given, "cannot be reached: its links lead in a circle, or its folder is gone.") from error


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Give an unused name in the folder of `target`. A file that has it when the block ends is removed."""
    _check_place(target)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
    finally:
        with suppress(OSError):  # what cannot be removed must not hide the error of the block
            part.unlink(missing_ok=True)


def _check_place(target: Path) -> None:
    folder = target.parent
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist: make it first"
        raise _refusal(target, f"cannot be written: the folder {folder} {reason}.")
    if not target.exists():
        return
    if target.is_dir():
        raise _refusal(target, "is a folder: give the path of a file.")
    if not stat.S_ISREG(target.stat().st_mode):
        raise _refusal(target, "is not an ordinary file: give another path.")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it may only be read")


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(target: Path, sentence: str) -> RefusedError:
    return RefusedError(errno.EINVAL, sentence, str(target))


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(error.errno or errno.EIO, error.strerror or str(error), str(target)) from error
