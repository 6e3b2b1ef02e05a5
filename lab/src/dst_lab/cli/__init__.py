"""`dst`, the command line of the laboratory."""

import os
import signal
import sys

if "torch" not in sys.modules:
    # Threads sleep while they wait: on busy cores those that spin made a step 8 times as long. On idle cores they are
    # up to a third faster for small networks: OMP_WAIT_POLICY=active brings that back. They read it when torch is
    # loaded, which a task of one's own does before it gets to `main`.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    """The installed command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules are loaded ends at once: nothing is open yet
    from dst_lab.cli.main import main as run  # which loads torch

    run()
