"""Figures, from a store alone. No torch, no data: what is drawn is what was recorded."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dst_lab import replace
from dst_lab.figures.style import Drawn, settle, styled, write
from dst_lab.records import Rows

__all__ = ["Drawn", "draw", "write", "write_files"]
KINDS = ("png", "svg")


def draw(
    figures: Mapping[str, Callable[[Rows], Drawn]], rows: Rows, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Drawn]:
    """Every figure by its name; `tell` is called with a sentence before each is drawn."""
    drawn: dict[str, Drawn] = {}
    with styled():
        for count, (name, make) in enumerate(figures.items(), 1):
            tell(f"drawing {name}, {count} of {len(figures)}")
            drawn[name] = make(rows)
            settle(drawn[name].figure)
    return drawn


def write_files(drawn: Mapping[str, Drawn], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each in the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, one in drawn.items():
        for ending in KINDS:
            written.append(folder / f"{name}.{ending}")
            replace.write_bytes(written[-1], write(one.figure, ending))
    return written
