"""What the kernels take besides the logits: tensors by row, and numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def blocks(count: int, size: int) -> int:
    """How many blocks of a size hold `count`: as `triton.cdiv`, without its microseconds per call."""
    return -(-count // size)


def shared(rows: int, value: Tensor | None) -> int:
    """How many rows that follow each other share one of the values."""
    return 1 if value is None else rows // len(value)


def source_of(seed: Tensor | None, noise: Tensor | None) -> int:
    """Where a kernel's noise comes from: 0 for none, 1 for a seed, 2 for a tensor."""
    return 2 if noise is not None else 0 if seed is None else 1


def as_stored(tensor: Tensor) -> Tensor:
    """A tensor whose memory holds its values one behind the other, with no sign still to be applied."""
    return tensor.resolve_neg().contiguous()


def by_row(value: Tensor, shape: Sequence[int], dim: int, width: int) -> Tensor:
    """A tensor that broadcasts to `shape`, as contiguous [n, width] rows, `dim` moved to the end.

    n divides the number of rows, and every rows / n that follow each other share one: a value for each run of a fleet,
    or one for all, is not written out.
    """
    value = value.reshape((1,) * (len(shape) - value.dim()) + tuple(value.shape)).movedim(dim, -1)
    lead, rows = list(value.shape[:-1]), list(shape)
    del rows[dim]
    used = len(lead)
    while used and lead[used - 1] == 1:
        used -= 1
    if lead[:used] != rows[:used]:
        lead = rows
    return as_stored(value.expand(*lead, width).reshape(math.prod(lead), width))


def number(value: float | Tensor | None, logits: Tensor, dim: int | None = None) -> tuple[Tensor | None, float]:
    """A temperature or scale as the operators take it: a tensor by row, or a float; neither for None.

    `dim` is where the categories lie; without it each element is a row. Compiled code gets a tensor in either case,
    since a float that changes would be compiled again and again.
    """
    if isinstance(value, float) and not torch.compiler.is_compiling():
        return None, value
    if value is None:
        return None, 0.0
    if not isinstance(value, Tensor):
        return torch.ones(1, dtype=torch.float32, device=logits.device) * value, 0.0
    if dim is None:
        return by_row(value[..., None], (*logits.shape, 1), -1, 1), 0.0
    return by_row(value, logits.shape, dim, 1), 0.0
