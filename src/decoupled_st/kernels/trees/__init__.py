"""Layers of trees of gates with their pool: `on_cuda` is in Triton, `on_cpu` in C; the functions have the same names.

values_of   images as [channels, height, width, images], a row of images per place
forward     a layer's values [trees, rows, columns, images] behind the pool, and which of its positions each is from
backward    the gradient of the coefficients c from that of the values, g; what the inputs get is added to `by_x`.
            Where g has fewer rows than there are trees, as many trees in turn share one
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """A layer of trees and the pool behind it.

    Attributes:
        wiring: [trees, leaves].
        kernel, padding, pool: their sizes; a pool of 1 is none.
        flat: True where the values before it are flattened first.
    """

    wiring: Tensor
    kernel: int
    padding: int
    pool: int
    flat: bool

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns behind the pool."""
        rows, columns = (size + 2 * self.padding - self.kernel + 1 for size in (height, width))
        return rows // self.pool, columns // self.pool
