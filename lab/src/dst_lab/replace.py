"""Every file that the laboratory writes appears whole or not at all, and never over something else by accident.

A file is written under another name in the same folder, a draft (`.NAME.RANDOM.part`), forced to the disk, and then
renamed. A draft that a killed process left is removed a day later, when the same file is written again.

**One rule for a file that exists already.** One that `dst` itself wrote as the same kind of output (a page, a figure,
an export, a prepared file) is replaced, since it can be made again. Any other file is replaced only with `--overwrite`.
A store is never replaced by another kind of output, and by a copy of a store only with `--overwrite`.
"""

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STORE_MAGICS = (b"SQLite format 3\0", b"\xfd7zXZ\0")
"""The first bytes of a store, plain and compressed."""
_ENDS = 1 << 16
"""Bytes at the beginning and at the end of a file in which its mark is looked for."""
_DAY = 86_400.0


class WriteError(OSError):
    """A file could not be written."""

    def __str__(self) -> str:
        return f"{self.filename} could not be written ({self.strerror}); nothing was changed."


class RefusedError(WriteError):
    """A file must not be written, or cannot be where it was asked for."""

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


@dataclass(frozen=True)
class Kind:
    """A kind of output: its name in a sentence, and bytes near the beginning or the end of a file that say that `dst`
    wrote it. A kind without a mark never replaces a file unless it is asked to."""

    name: str
    mark: bytes


PAGE = Kind("a page made by `dst report`", b'<meta name="generator" content="dst report">')
PNG = Kind("a figure made by `dst report`", b"Software\0dst report")
SVG = Kind("a figure made by `dst report`", b"<dc:title>dst report</dc:title>")
CSV = Kind("an export made by `dst export`", b"run,task,estimator,tau_f,tau_b,seed,step,metric,value")
PARQUET = Kind("an export made by `dst export`", b"dst export")
PREPARED = Kind("a file made by `dst data prepare`", b"dst-levels ")
CIRCUIT = Kind("a circuit made by `dst circuit`", b"decoupled-st circuit")
IMAGES = Kind("the first test images of this network", b"")
STORE = Kind("a store", b"")


def check_target(path: str | os.PathLike[str], kind: Kind, *, overwrite: bool = False) -> None:
    """Raise `WriteError` where `path` cannot be written, or where the rule of this module protects an existing file.

    Call it before the work whose result is to be written: a draft is made in the folder of `path`, and removed again.
    """
    target = resolved(path)
    with _explained(target), draft(target) as part:
        part.touch(exist_ok=False)
    if not target.exists():
        return
    with _explained(target), open(target, "rb") as file:
        head = file.read(_ENDS)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        tail = file.read()
    if kind is not STORE and head.startswith(STORE_MAGICS):
        raise _refusal(target, "is a store, which this would overwrite: give another path.")
    is_own = bool(kind.mark) and (kind.mark in head or kind.mark in tail)
    if not (is_own or overwrite):
        what = "exists already" if kind is STORE else f"exists already, and is not {kind.name}"
        raise _refusal(target, f"{what}: give another path, or replace it with --overwrite (overwrite=True).")


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
    """Give the name of a draft; what is there when the block ends well takes the place of `path`.

    Errors of the system become `WriteError`. A link is followed: the file it leads to is replaced.
    """
    target = resolved(path)
    with _explained(target), draft(target) as part:
        yield part
        put_in_place(part, target)


@contextmanager
def draft(target: Path) -> Iterator[Path]:
    """Give an unused name in the folder of `target`. A file that has it when the block ends is removed."""
    _check_place(target)
    with suppress(OSError):
        for path in target.parent.iterdir():
            is_draft = path.name.startswith(f".{target.name}.") and path.name.endswith(".part")
            if is_draft and time.time() - path.stat().st_mtime > _DAY:
                path.unlink()
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
    finally:
        with suppress(OSError):  # what cannot be removed must not hide the error of the block
            part.unlink(missing_ok=True)


def put_in_place(part: Path, target: Path) -> None:
    """Force a draft to the disk and give it the name of `target`, with the permissions of the file that it replaces."""
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
