"""A layer of trees on a CPU: `trees.c`, made by the system's compiler when it is first needed, on as many threads as
torch has."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.kernels.compiler import CompilerError, find_compiler, load
from decoupled_st.kernels.parallel import in_parallel
from decoupled_st.kernels.trees import Step

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

    _names = ("trees", "height", "width", "images", "kernel", "padding", "pool", "rows", "columns", "group")
    _fields_ = [(name, ctypes.c_int64) for name in _names]


def values_of(x: Tensor) -> Tensor:
    """[channels, height, width, images], the images filled up to whole spans."""
    rows = x.permute(1, 2, 3, 0).to(DTYPE)
    return F.pad(rows, (0, -rows.shape[-1] % LANES[-1])).contiguous()


def forward(x: Tensor, c: Tensor, step: Step) -> tuple[Tensor, Tensor]:
    size = step.output_size(*x.shape[1:3])
    y = torch.empty(len(step.wiring), *size, x.shape[-1], dtype=DTYPE, device="cpu")
    taken = torch.empty(y.shape, dtype=torch.uint8, device="cpu")
    _call("forward", x, step, size, 1, lambda: (x, c, step.wiring, y, taken))
    return y, taken


def backward(x: Tensor, c: Tensor, step: Step, taken: Tensor, g: Tensor, by_x: Tensor | None) -> Tensor:
    size, group = taken.shape[1:3], len(step.wiring) // len(g)
    given = _call("backward", x, step, size, group, lambda: (x, c, step.wiring, taken, g, by_x, torch.zeros_like(c)))
    return torch.stack([by_c for *_, by_c in given]).sum(0)


def _call(
    name: str, x: Tensor, step: Step, size: Sequence[int], group: int, tensors: Callable[[], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Call a function of the library with the spans of images split among the threads; the tensors of each part."""
    images, threads = x.shape[-1], torch.get_num_threads()
    lanes = next(lanes for lanes in LANES if lanes == LANES[-1] or (images % lanes == 0 and images >= lanes * threads))
    function, depth = getattr(library(lanes), name), step.wiring.shape[1].bit_length() - 1
    layer = _Layer(len(step.wiring), *x.shape[1:], step.kernel, step.padding, step.pool, *size, group)

    def call(first: int, last: int) -> tuple[Any, ...]:
        given = tensors()
        pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in given]
        function(*pointers, ctypes.byref(layer), *(ctypes.c_int64(number) for number in (depth, first, last)))
        return given

    return in_parallel(images // lanes, call)
