"""Ends what a killed driver left behind of its own Ray: a small process that waits for the driver's end.

Started as a script of its own, with nothing but Python's standard library: `python reaper.py FOLDER DRIVER`. Its
standard input is a pipe that the driver holds open, so that it ends with the driver, however that ends. Ray's agents
would go on for another minute, and its files for ever.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


def main(folder: str, driver: int) -> None:
    """Wait until the driver ends or closes the pipe; then end all others that have a file of the folder open."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    for _ in range(50):
        pids = [pid for pid in users_of(folder) if pid != driver]
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            break
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def users_of(folder: str) -> list[int]:
    """This user's other processes that have a file below the folder open, by Linux's /proc; none elsewhere."""
    users = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):
            if process.stat().st_uid == os.getuid() and any(_is_below(link, folder) for link in _open(process)):
                users.append(int(process.name))
    return users


def _open(process: Path) -> list[Path]:
    return [process / "cwd", *(process / "fd").iterdir()]


def _is_below(link: Path, folder: str) -> bool:
    with suppress(OSError):
        return os.readlink(link).startswith(folder + os.sep)
    return False


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
