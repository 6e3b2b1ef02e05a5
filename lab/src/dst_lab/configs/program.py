"""The program whose command line knows what a module registers."""

import shlex
import sys
from pathlib import Path


def program(module: str) -> str:
    """`dst`, or `python FILE` where the module is the file that was started: `dst` by itself does not import it."""
    file = getattr(sys.modules["__main__"], "__file__", None) if module == "__main__" else None
    return f"python {shlex.quote(Path(file).name)}" if file else "dst"
