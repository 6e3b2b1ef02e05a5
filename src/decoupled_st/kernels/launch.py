"""Launching a kernel that is compiled already.

`kernel[grid](...)` classifies every argument to find the compiled kernel: tens of microseconds of Python at each call,
more than a small kernel takes. What it finds, and returns, depends on little; `launch` remembers it by that, and calls
it as Triton's tutorials do.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

_compiled: dict[tuple[object, ...], Any] = {}
_TAKES_CONSTANTS = hasattr(triton, "knobs")
"""From Triton 3.4 on a compiled kernel takes its compile-time constants too, and leaves them out."""


def launch(
    kernel: Any,
    programs: int,
    tensors: Sequence[Tensor | None],
    floats: Sequence[float],
    integers: Sequence[int],
    constants: tuple[int, ...],
    warps: int,
) -> None:
    """Run a kernel on the device of its first tensor and the current stream, as `kernel[(programs,)](...)` does.

    Its parameters are tensors, of which any but the first may be None, floats, integers and compile-time constants, in
    this order. Triton's own launch is called the first time, with a tensor that does not start at a multiple of 16
    bytes, and in its interpreter.
    """
    first = tensors[0]
    assert first is not None
    device = first.get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return launch(kernel, programs, tensors, floats, integers, constants, warps)
    key = kind_of(tensors, integers) if device >= 0 and _TAKES_CONSTANTS else None
    if key is not None:
        key = (id(kernel), device, warps, constants, *key)
        if (compiled := _compiled.get(key)) is not None:
            compiled[programs, 1, 1](*tensors, *floats, *integers, *constants)
            return None
    compiled = kernel[(programs,)](*tensors, *floats, *integers, *constants, num_warps=warps)
    if key is not None and compiled is not None:  # None where a hook of Triton's has kept it from compiling
        _compiled[key] = compiled
    return None


def kind_of(tensors: Sequence[Tensor | None], integers: Sequence[int]) -> tuple[object, ...] | None:
    """What makes Triton compile a kernel again: dtypes and what is None; integers that are 1, that 16 divides, or that
    take 64 bits. None where a tensor does not start at a multiple of 16 bytes."""
    if any(x is not None and x.data_ptr() % 16 for x in tensors):
        return None
    dtypes = [None if x is None else x.dtype for x in tensors]
    return (*dtypes, *(1 if n == 1 else (n % 16 == 0, n >= 2**31) for n in integers))
