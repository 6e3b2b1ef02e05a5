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

LANES = (64, 32, 16)
"""Images of a span: the most that leave a span for every thread."""
DTYPE = torch.float32
"""The dtype of the values between layers."""


@cache
def library(lanes: int = LANES[0]) -> ctypes.CDLL | None:
    """The loops, loaded; None where there is no compiler, or it fails."""
    try:
        source = (files("decoupled_st.kernels.trees") / "trees.c").read_text("utf-8")
        return load(source, find_compiler(), f"-DLANES={lanes}")
    except (CompilerError, OSError):
        return None


class _Layer(ctypes.Structure):
    """`layer` of trees.c."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "trees",
            "height",
            "width",
            "images",
            "kernel",
            "padding",
            "pool",
            "rows",
            "columns",
            "group",
        )
    ]


def values_of(x: Tensor) -> Tensor:
    """[channels, height, width, images], the images filled up to whole spans."""
    rows = x.permute(1, 2, 3, 0).to(DTYPE)
    return F.pad(rows, (0, -rows.shape[-1] % LANES[-1])).contiguous()


def forward(
    x: Tensor, c: Tensor, wiring: Tensor, kernel: int, padding: int, pool: int, rows: int, columns: int
) -> tuple[Tensor, Tensor]:
    """Values [trees, rows, columns, images] behind the pool, and which of its positions each is from."""
    trees, leaves = wiring.shape
    y = torch.empty(trees, rows, columns, x.shape[-1], dtype=DTYPE)
    taken = torch.empty(y.shape, dtype=torch.uint8)
    layer = _Layer(trees, *x.shape[1:], kernel, padding, pool, rows, columns, 1)

    lanes = _lanes(x.shape[-1])

    def call(first: int, last: int) -> None:
        _run("forward", lanes, (x, c, wiring, y, taken), layer, leaves, first, last)

    in_parallel(x.shape[-1] // lanes, call)
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

    lanes = _lanes(x.shape[-1])

    def call(first: int, last: int) -> Tensor:
        by_c = torch.zeros_like(c)
        _run("backward", lanes, (x, c, wiring, taken, g, by_x, by_c), layer, leaves, first, last)
        return by_c

    return torch.stack(in_parallel(x.shape[-1] // lanes, call)).sum(0)


def _lanes(images: int) -> int:
    threads = torch.get_num_threads()
    return next(lanes for lanes in LANES if lanes == LANES[-1] or (images % lanes == 0 and images >= lanes * threads))


def _run(
    name: str, lanes: int, tensors: tuple[Tensor | None, ...], layer: _Layer, leaves: int, first: int, last: int
) -> None:
    pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    numbers = [ctypes.c_int64(number) for number in (leaves.bit_length() - 1, first, last)]
    getattr(library(lanes), name)(*pointers, ctypes.byref(layer), *numbers)
