"""Every figure of the paper, from a store alone."""

from collections.abc import Callable

from dst_lab.figures import Drawn, Rows
from dst_lab.figures.style import settle, styled
from dst_lab.studies.paper.figures import activity, bias, curves, effects, gates, maps, reconstructions

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

__all__ = ["FIGURES", "draw"]


def draw(rows: Rows) -> dict[str, Drawn]:
    """Every figure by its name."""
    with styled():
        drawn = {name: make(rows) for name, make in FIGURES.items()}
        for one in drawn.values():
            settle(one.figure)
    return drawn
