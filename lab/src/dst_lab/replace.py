"""Every file that the laboratory writes: it appears whole or not at all, and never over something else by accident.

A file is written under another name in the same folder (a draft, `.NAME.PID.HOST-RANDOM.part`), forced to the disk, and
then renamed. What a killed process left of its drafts goes when the same file is written again.

**One rule for what is there already.** A file that `dst` itself wrote as the same kind of output (a page, a figure, an
export, a prepared file) is replaced: it can be made again. Any other file is replaced only where `--overwrite` says so.
A store is never replaced by another kind of output, and by a copy of a store only with `--overwrite`.
"""

import errno
import hashlib
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STORE_MAGICS = (b"SQLite format 3\0", b"\xfd7zXZ\0")
"""The first bytes of a store, plain and compressed."""
_ENDS = 1 << 16
"""Bytes at the beginning and at the end of a file in which its mark is looked for."""


class WriteError(OSError):
    """A file cannot be written, or must not be. The message is a sentence that names the file."""

    def __init__(self, number: int, reason: str, sentence: str) -> None:
        super().__init__(number, reason)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence

    def __reduce__(self) -> tuple[type["WriteError"], tuple[int, str, str]]:
        return type(self), (self.errno or 0, self.strerror or "", self.sentence)


@dataclass(frozen=True)
class Kind:
    """A kind of output: its name in a sentence, and bytes near the beginning or the end of a file by which `dst` knows
    its own. They say who wrote it, not what format it has; without any, no file is replaced without being asked to."""

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
    """Raise `WriteError` where `path` cannot be written, or where the rule of this module protects what is there.

    Call it before the work whose result is to be written: a file is made beside `path`, and removed again.
    """
    target = resolved(path)
    check_place(target)
    with _explained(target), draft(target) as part:
        part.touch(exist_ok=False)
    if not target.exists():
        return
    with _explained(target), open(target, "rb") as file:
        head = file.read(_ENDS)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        tail = file.read()
    if kind is not STORE and head.startswith(STORE_MAGICS):
        raise _refusal(errno.EEXIST, target, "is a store, which this would overwrite: give another path.")
    own = bool(kind.mark) and (kind.mark in head or kind.mark in tail)
    if not (own or overwrite):
        what = "exists already" if kind is STORE else f"exists already, and is not {kind.name}"
        raise _refusal(
            errno.EEXIST, target, f"{what}: give another path, or replace it with --overwrite (overwrite=True)."
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """The whole text, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """The whole content."""
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream of bytes, which become the file when the block ends well."""
    with replacing(path) as part, open(part, "xb") as stream:
        yield stream


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside `path` to write to; what is there when the block ends well takes the place of `path`.

    Errors of the system become `WriteError`. A link is followed: the file it leads to is the one that is replaced.
    """
    target = resolved(path)
    check_place(target)
    with _explained(target), draft(target) as part:
        yield part
        put_in_place(part, target)


@contextmanager
def draft(target: Path) -> Iterator[Path]:
    """An unused name beside `target`. What is left under it at the end goes, and so do drafts of killed processes."""
    for dead in left_behind(target):
        with suppress(OSError):
            dead.unlink()
    part = target.with_name(f".{target.name}.{os.getpid()}.{host()}-{secrets.token_hex(3)}.part")
    try:
        yield part
    finally:
        # What cannot be removed must not hide the error that brought us here. SQLite and xz make names that begin so.
        for left in (part, *(part.with_name(part.name + end) for end in ("-journal", "-wal", "-shm", ".xz"))):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def write_draft(part: Path, content: bytes) -> None:
    """The whole content under the name of a draft, forced to the disk."""
    part.write_bytes(content)
    flush(part)


def put_in_place(part: Path, target: Path) -> None:
    """Force a draft to the disk and give it the name of `target`, with the permissions of the file that it replaces."""
    with suppress(OSError):
        shutil.copymode(target, part)
    flush(part)
    os.replace(part, target)
    flush(target.parent)


def flush(path: Path) -> None:
    """Wait until the file is on the disk, or the names in the folder where the system can wait for those."""
    if path.is_dir():
        with suppress(OSError):
            _fsync(path, os.O_RDONLY)
    else:
        _fsync(path, os.O_RDWR)


def resolved(path: str | os.PathLike[str]) -> Path:
    """The file itself, whatever links lead to it; `WriteError` where they lead in a circle."""
    given = Path(path).expanduser()
    try:
        return given.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise _refusal(
            errno.ELOOP, given, "cannot be reached: its links lead in a circle, or its folder is gone."
        ) from (error)


def check_place(target: Path) -> None:
    """Raise `WriteError` where no file can be put at `target`."""
    folder = target.parent
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist: make it first"
        raise WriteError(errno.ENOENT, "No such folder", f"{target}: the folder {folder} {reason}.")
    with _explained(target):
        exists = target.exists()
        if exists and target.is_dir():
            raise _refusal(errno.EISDIR, target, "is a folder: give the path of a file.")
        if exists and not stat.S_ISREG(target.stat().st_mode):
            raise _refusal(errno.EINVAL, target, "is not an ordinary file: give another path.")
        if exists and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it may only be read")


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            error.errno or 0, reason, f"{target} could not be written ({reason}); nothing was changed."
        ) from error


def _refusal(number: int, target: Path, sentence: str) -> WriteError:
    return WriteError(number, sentence, f"{target} {sentence}")


def left_behind(target: Path, *, alone: bool = False) -> list[Path]:
    """Drafts of `target` whose process on this machine is no longer alive; of any process, where the caller holds a
    lock and so is `alone`."""
    before = f".{target.name}."
    drafts = []
    with suppress(OSError):
        for path in target.parent.iterdir():
            if not path.name.startswith(before) or ".part" not in path.name[len(before) :]:
                continue
            pid, machine, *_ = path.name[len(before) :].replace("-", ".").split(".")
            if alone or (pid.isdigit() and machine in (host(), "part") and not is_alive(int(pid))):
                drafts.append(path)
    return drafts


def is_alive(pid: int) -> bool:
    """True for a process of this machine that runs, whoever owns it."""
    if os.name == "nt":
        return True  # where os.kill would end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def host() -> str:
    """Six letters for this machine: a folder may be shared with others, whose processes cannot be seen from here."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
