"""Figures, from a store alone. No torch, no data: what is drawn is what was recorded."""

from pathlib import Path

from dst_lab.figures.rows import Rows
from dst_lab.figures.style import Drawn, write

__all__ = ["Drawn", "Rows", "write", "write_files"]


def write_files(drawn: dict[str, Drawn], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each in the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, one in drawn.items():
        for kind in ("png", "svg"):
            written.append(folder / f"{name}.{kind}")
            written[-1].write_bytes(write(one.figure, kind))
    return written
