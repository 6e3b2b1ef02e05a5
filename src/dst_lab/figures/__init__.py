"""Every figure, from a store alone. No torch, no data: what is drawn is what was recorded."""

from collections.abc import Callable
from pathlib import Path

from dst_lab.figures import activity, bias, curves, effects, gates, maps, reconstructions
from dst_lab.figures.rows import Rows
from dst_lab.figures.style import Drawn, settle, styled, write

FIGURES: dict[str, Callable[[Rows], Drawn]] = {
    "map": maps.network,
    "network-curves": curves.network,
    "inactive": activity.network,
    "autoencoder-curves": curves.autoencoder,
    "reconstructions": reconstructions.strip,
    "autoencoder-search": maps.autoencoder_search,
    "logic-curves": curves.logic,
    "gates": gates.histograms,
    "logic-search": maps.logic_search,
    "tau-f-effects": effects.tau_f,
    "tau-b-effects": effects.tau_b,
    "bias-variance": bias.variance,
}
"""In the order in which they are read."""

__all__ = ["FIGURES", "Drawn", "Rows", "draw", "write", "write_files"]


def draw(rows: Rows) -> dict[str, Drawn]:
    """Every figure by its name."""
    with styled():
        drawn = {name: make(rows) for name, make in FIGURES.items()}
        for one in drawn.values():
            settle(one.figure)
    return drawn


def write_files(drawn: dict[str, Drawn], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each in the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, one in drawn.items():
        for kind in ("png", "svg"):
            written.append(folder / f"{name}.{kind}")
            written[-1].write_bytes(write(one.figure, kind))
    return written
