"""A layer of trees on a CPU: `trees.c`, made by the system's compiler when it is first needed, on as many threads as
torch has."""

import ctypes
from functools import cache
from importlib.resources import files

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel

LANES = 16
DEPTHS = range(1, 7)
DTYPE = torch.float32
"""Of the values between layers."""


@cache
def library() -> ctypes.CDLL | None:
    """The loops, loaded; None where there is no compiler, or it fails."""
    try:
        return load((files("decoupled_st.kernels.trees") / "trees.c").read_text("utf-8"), find_compiler())
    except (CompilerError, OSError):
        return None


class _Layer(ctypes.Structure):
    """`layer` of trees.c."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "trees", "height", "width", "images", "kernel", "padding", "pool", "rows", "columns", "group",
        )
    ]  # fmt: skip


def values_of(x: Tensor) -> Tensor:
    """[channels, height, width, images], the images filled up to whole spans."""
    rows = x.permute(1, 2, 3, 0).to(DTYPE)
    return F.pad(rows, (0, -rows.shape[-1] % LANES)).contiguous()


def forward(
    x: Tensor, c: Tensor, wiring: Tensor, kernel: int, padding: int, pool: int, rows: int, columns: int
) -> tuple[Tensor, Tensor]:
    """Values [trees, rows, columns, images] behind the pool, and which of its positions each is from."""
    trees, leaves = wiring.shape
    y = torch.empty(trees, rows, columns, x.shape[-1], dtype=DTYPE)
    taken = torch.empty(y.shape, dtype=torch.uint8)
    layer = _Layer(trees, *x.shape[1:], kernel, padding, pool, rows, columns, 1)

    def call(first: int, last: int) -> None:
        _run("forward", (x, c, wiring, y, taken), layer, leaves, first, last)

    in_parallel(x.shape[-1] // LANES, call)
    return y, taken


def backward(
    x: Tensor,
    c: Tensor,
    wiring: Tensor,
    kernel: int,
    padding: int,
    pool: int,
    taken: Tensor,
    g: Tensor,
    by_x: Tensor | None,
) -> Tensor:
    """The gradient of c from that of the values, g; what the inputs get is added to by_x.

    Where g has fewer rows than there are trees, as many trees in turn share one.
    """
    trees, leaves = wiring.shape
    layer = _Layer(trees, *x.shape[1:], kernel, padding, pool, *taken.shape[1:3], trees // len(g))

    def call(first: int, last: int) -> Tensor:
        by_c = torch.zeros_like(c)
        _run("backward", (x, c, wiring, taken, g, by_x, by_c), layer, leaves, first, last)
        return by_c

    return torch.stack(in_parallel(x.shape[-1] // LANES, call)).sum(0)


def _run(name: str, tensors: tuple[Tensor | None, ...], layer: _Layer, leaves: int, first: int, last: int) -> None:
    pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    numbers = [ctypes.c_int64(number) for number in (leaves.bit_length() - 1, first, last)]
    getattr(library(), name)(*pointers, ctypes.byref(layer), *numbers)
