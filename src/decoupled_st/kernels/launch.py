"""Launching a kernel that is compiled already.

`kernel[grid](...)` classifies every argument to find the compiled kernel: tens of microseconds of Python at each call,
more than a small kernel takes. What it finds depends on little; `launch` remembers it by that, and does what Triton's
own launch ends with.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

try:
    from triton import knobs
except ImportError:  # before 3.4
    knobs = None

_LAST_STEP = (
    "kernel.run(grid_0, grid_1, grid_2, stream, kernel.function, kernel.packed_metadata, launch_metadata, "
    "knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook, *bound_args.values())"
)
"""How Triton launches what it has found, from 3.4 to 3.9 at least."""


class _Compiled(NamedTuple):
    """A kernel that is loaded on a device."""

    run: Callable[..., None]
    function: int
    metadata: Any
    owner: Any
    """Triton's own object, which unloads the code when it goes."""


_compiled: dict[tuple[object, ...], _Compiled] = {}


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
    this order. Triton's own launch is called the first time, with a tensor that does not begin at a multiple of 16
    bytes, while hooks watch Triton's launches, in its interpreter, and with a Triton that launches in another way than
    those known.
    """
    device = tensors[0].get_device()  # type: ignore[union-attr]
    if not is_known() or kernel.pre_run_hooks or is_watched():
        _launch_ordinarily(kernel, programs, (*tensors, *floats, *integers, *constants), warps)
        return
    if device != torch._C._cuda_getDevice():
        with torch.cuda.device(device):
            launch(kernel, programs, tensors, floats, integers, constants, warps)
        return
    pointers, kinds = _classified(tensors, integers)
    key = (id(kernel), device, warps, constants, kinds)
    compiled = None if kinds is None else _compiled.get(key)
    if compiled is None:
        owner = _launch_ordinarily(kernel, programs, (*tensors, *floats, *integers, *constants), warps)
        if kinds is not None and owner is not None:  # None where a hook of Triton's has kept it from compiling
            _compiled[key] = _Compiled(owner.run, owner.function, owner.packed_metadata, owner)
        return
    stream = torch._C._cuda_getCurrentRawStream(device)
    compiled.run(
        programs, 1, 1, stream, compiled.function, compiled.metadata, None, None, None,
        *pointers, *floats, *integers, *constants,
    )  # fmt: skip


def _classified(
    tensors: Sequence[Tensor | None], integers: Sequence[int]
) -> tuple[list[int | None], tuple[object, ...] | None]:
    """Where tensors begin, and what Triton compiles a kernel anew for: dtypes and what is None; integers that are 1,
    that 16 divides, or that take 64 bits. None instead where a tensor begins at no multiple of 16 bytes."""
    pointers: list[int | None] = []
    kinds: list[object] = []
    bits = 0
    for x in tensors:
        if x is None:
            pointers.append(None)
            kinds.append(None)
        else:
            pointer = x.data_ptr()
            bits |= pointer
            pointers.append(pointer)
            kinds.append(x.dtype)
    kinds += _kinds(integers)
    return pointers, None if bits % 16 else tuple(kinds)


def _kinds(integers: Sequence[int]) -> list[object]:
    return [1 if n == 1 else (n % 16 == 0, n >= 2**31) for n in integers]


def _launch_ordinarily(kernel: Any, programs: int, arguments: Sequence[object], warps: int) -> Any:
    with torch.cuda.device_of(arguments[0]):
        return kernel[(programs,)](*arguments, num_warps=warps)


@cache
def is_known() -> bool:
    """True where kernels are compiled for CUDA, by a Triton that ends its launch in the known step."""
    if os.environ.get("TRITON_INTERPRET") == "1" or torch.version.cuda is None or knobs is None:
        return False
    try:
        return _LAST_STEP in " ".join(inspect.getsource(JITFunction.run).split())
    except OSError:  # a Triton without its source
        return False


def is_watched() -> bool:
    """True where someone is to be told of launches, or has Triton compile in another way than usual."""
    runtime, compilation = knobs.runtime, knobs.compilation
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(
        getattr(enter, "calls", enter)  # None, or a chain of hooks that may be empty
        or getattr(leave, "calls", leave)
        or runtime.debug
        or getattr(runtime, "add_stages_inspection_hook", None)
        or getattr(compilation, "instrumentation_mode", None)
    )
