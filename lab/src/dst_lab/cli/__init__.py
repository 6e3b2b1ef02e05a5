"""`dst`, the command line of the laboratory."""

import os
import signal
import sys

STOPPED = "dst: stopped at once; what was recorded is safe, and the same command goes on\n"


def main() -> None:
    """The installed command: says what to install where the laboratory's own needs are missing."""
    # While modules are loaded, an interrupt in the middle of one would end in whatever that module makes of it.
    signal.signal(signal.SIGINT, _stop)
    try:
        os.getcwd()
    except FileNotFoundError:  # where torch would end the process in its own words
        os.write(2, b"dst: the folder in which this runs no longer exists: change to another one\n")
        sys.exit(2)
    if "torch" not in sys.modules:
        # Threads sleep while they wait: on busy cores those that spin made a step 8 times as long. On idle cores they
        # are up to a third faster for small networks: OMP_WAIT_POLICY=active brings that back.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from dst_lab.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(f'dst: the laboratory needs {error.name}, which is not installed: pip install "dst-lab"')
    run()


def _stop(*_: object) -> None:
    """Leave at once: nothing has been opened yet."""
    os.write(2, STOPPED.encode())
    os._exit(130)
