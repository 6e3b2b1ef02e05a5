"""`dst`, the command line of the laboratory."""

import sys


def main() -> None:
    """The installed command: says what to install where the laboratory's own needs are missing."""
    try:
        from dst_lab.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(f'dst: the laboratory needs {error.name}, which is not installed: pip install "decoupled-st[lab]"')
    run()
