"""One writer: a lock file beside the store, which says who holds it.

The lock is the kernel's (flock), so it ends with its process however that ends. Where there is none (some network
file systems, Windows) the file itself is the lock, and is taken over when its process is no longer alive.
"""

import errno
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dst_lab.replace import is_alive
from dst_lab.store.errors import SAFE, StoreError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_WITHOUT_FLOCK = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL}


class Lock:
    """The right to write the store at `path`, from `Lock(path)` until `release()`."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._store = path
        self._owner = os.getpid()
        try:
            self._descriptor = self._acquire()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: the lock {self.path} could not be made ({error.strerror}); {SAFE}. "
                "Make room or make the folder writable, or work on a copy elsewhere, made with `dst copy`."
            ) from error
        _held.add(self._descriptor)

    def release(self) -> None:
        """Give the right back. Does nothing the second time, or in a forked child, whose parent still holds it."""
        if self._descriptor < 0 or self._owner != os.getpid():
            return
        descriptor, self._descriptor = self._descriptor, -1
        _held.discard(descriptor)
        if os.name == "nt":
            os.close(descriptor)
            self.path.unlink(missing_ok=True)
            return
        # Removed while still held: whoever opened it in between finds the name gone, and begins again.
        with suppress(OSError):
            self.path.unlink()
        os.close(descriptor)

    def _acquire(self) -> int:
        while fcntl is not None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise self._refusal() from None
            except OSError as error:
                os.close(descriptor)
                if error.errno not in _WITHOUT_FLOCK:
                    raise
                self.path.unlink(missing_ok=True)
                break
            if _is_at(descriptor, self.path):
                return self._signed(descriptor)
            os.close(descriptor)
        return self._acquire_by_name()

    def _acquire_by_name(self) -> int:
        # Another name than the one flock was tried on: here the name is the lock, and must not exist before it is held.
        self.path = self.path.with_name(self.path.name + ".pid")
        for _ in range(2):
            with suppress(FileExistsError):
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                return self._signed(descriptor)
            if not self._bury():
                break
        raise self._refusal()

    def _signed(self, descriptor: int) -> int:
        """Write who holds the lock into it; where the disk has no room for that, leave none behind."""
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(holder).encode())
        except OSError:
            self.path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return descriptor

    def _bury(self) -> bool:
        """Remove the lock of a process of this host that is no longer alive; False where it may be."""
        if os.name == "nt":
            # Windows refuses to remove a file that its living holder has open.
            with suppress(OSError):
                self.path.unlink()
                return True
            return False
        holder = _read(self.path)
        if holder.get("host") != socket.gethostname() or _is_alive(holder.get("pid")):
            return False
        # Renamed, then looked at again: of two that find the same dead lock, the slower must not remove the new one.
        grave = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            os.rename(self.path, grave)
            if _read(grave) != holder:
                os.rename(grave, self.path)
                return False
            grave.unlink()
        return True

    def _refusal(self) -> StoreError:
        holder = _read(self.path)
        if not holder:
            return StoreError(
                f"{self._store} is being written by another process, which did not sign its lock. Wait for it to end; "
                f"if there is none, remove {self.path}."
            )
        return StoreError(
            f"{self._store} is being written by process {holder['pid']} on host {holder['host']} since "
            f"{holder['since']}. Wait for it to end, or stop it; reading, `dst copy` and `dst show` work meanwhile. "
            f"If that process is gone and this message stays, remove {self.path}."
        )


_held: set[int] = set()


def _forget_after_fork() -> None:
    # flock belongs to every process that shares the descriptor: an orphaned worker would keep a dead driver's lock.
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def _read(path: Path) -> dict[str, Any]:
    """Who signed the lock; empty where nobody has, not even a moment later."""
    for _ in range(10):
        with suppress(OSError, ValueError):
            holder = json.loads(path.read_bytes())
            if isinstance(holder, dict) and {"pid", "host", "since"} <= holder.keys():
                return holder
        time.sleep(0.01)
    return {}


def _is_at(descriptor: int, path: Path) -> bool:
    """True where the open file is still the one under this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _is_alive(pid: object) -> bool:
    return not isinstance(pid, int) or is_alive(pid)
