"""Every figure of the paper, from a store alone."""

from collections.abc import Callable

from dst_lab.figures import Drawn
from dst_lab.records import Rows

from studies.paper.figures import activity, bias, curves, effects, gates, reconstructions, search

FIGURES: dict[str, Callable[[Rows], Drawn]] = {
    "seeds": curves.chosen,
    "map": search.network,
    "network-curves": curves.network,
    "inactive": activity.network,
    "autoencoder-curves": curves.autoencoder,
    "reconstructions": reconstructions.strip,
    "autoencoder-search": search.autoencoder,
    "logic-curves": curves.logic,
    "gates": gates.histograms,
    "logic-search": search.logic,
    "tau-f-effects": effects.tau_f,
    "tau-b-effects": effects.tau_b,
    "bias-variance": bias.variance,
}
"""The figures in the order in which they are read."""

__all__ = ["FIGURES"]
