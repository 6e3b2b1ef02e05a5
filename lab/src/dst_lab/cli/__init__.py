"""`dst`, the command line of the laboratory."""

import os
import signal
import sys


def main() -> None:
    """The installed command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules are loaded ends at once: nothing is open yet
    if "torch" not in sys.modules:
        # Threads sleep while they wait: on busy cores those that spin made a step 8 times as long. On idle cores they
        # are up to a third faster for small networks: OMP_WAIT_POLICY=active brings that back.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from dst_lab.cli.main import main as run  # which loads torch

    run()
