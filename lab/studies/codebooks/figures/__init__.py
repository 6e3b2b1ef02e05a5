"""Every figure of the study, from a store alone."""

from collections.abc import Callable

from dst_lab.figures import Drawn
from dst_lab.records import Rows

from studies.codebooks.figures import reconstructions, sizes

FIGURES: dict[str, Callable[[Rows], Drawn]] = {
    "quality": sizes.quality,
    "reconstructions": reconstructions.strip,
    "cost": sizes.cost,
}
"""The figures in the order in which they are read."""

__all__ = ["FIGURES"]
