"""Fused kernels, in Triton: what they speed up takes them on CUDA by itself. Logic layers have them in C on CPUs too.

The plain definition of each op is its specification, and serves every case that a kernel does not. This file decides
which of the two runs, and asks torch for it: is a call traced, transformed, run again?
"""

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

TENSORS = (Tensor, torch.nn.Parameter)
"""torch's own, not subclasses."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Under Triton's interpreter the kernels run on the CPU: that is how they are tested without a GPU.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_wanted = True
_on = find_spec("triton") is not None


def use_kernels(on: bool) -> None:
    """Switch fused kernels on or off: Triton's on CUDA, where it is installed, and those of large logic layers on a
    CPU, where there is a C compiler. They are on from the start.

    Example:
        >>> import decoupled_st as dst
        >>> dst.use_kernels(False)  # plain PyTorch from here on
        >>> dst.use_kernels(True)
    """
    global _on, _wanted
    if not isinstance(on, bool):
        raise TypeError(f"use_kernels takes True or False, got {on!r}")
    _wanted = on
    _on = on and find_spec("triton") is not None


def is_wanted() -> bool:
    """True unless `use_kernels(False)` was called."""
    return _wanted


def know(logits: Tensor) -> bool:
    """True where kernels are on and there are some for this device, dtype and size."""
    here: bool = logits.is_cpu if INTERPRETED else logits.is_cuda
    return _on and here and logits.dtype in _DTYPES and logits.numel() < 2**32


def can_run_fused(logits: Tensor, grad_scale: float | Tensor, *others: object) -> bool:
    """True where a kernel can take these logits; `others` are the temperatures, mask and noise, floats or tensors.

    Not for float64, empty logits, more elements than the noise can number, subclasses of `Tensor`, tensors as
    `grad_scale`, learned temperatures and tensors on another device, and not inside `torch.func` transforms and
    forward-mode differentiation or while `torch.jit` traces, which only the plain operations can follow.
    """
    fits = (
        know(logits)
        and type(logits) in TENSORS
        and logits.numel() > 0
        and not isinstance(grad_scale, Tensor)
        and forward_ad._current_level < 0  # read here, where torch.compile guards it
        and not transformed()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined]
    )
    if not fits:
        return False
    for x in others:  # noqa: SIM110, since a generator takes longer than all of the above
        if isinstance(x, Tensor) and (x.device != logits.device or x.requires_grad):
            return False
    return True


def can_take_gradient(grad: Tensor) -> bool:
    """True where a kernel can take this gradient: it is neither differentiated (`create_graph=True`) nor transformed,
    and not many at once (`is_grads_batched`)."""
    if torch.is_grad_enabled() or transformed():
        return False
    return is_watched() or not torch._C._functorch.is_legacy_batchedtensor(grad)


def plain_gradient(define: Callable[[Tensor], Tensor], logits: Tensor, grad: Tensor) -> Tensor:
    """What a backward kernel computes, by the plain definition: in operations that can be transformed and
    differentiated once more."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        result = define(logits)
    return torch.autograd.grad(result, logits, grad, create_graph=again)[0]


def is_watched() -> bool:
    """True where someone traces or watches what is called: then a kernel must be called as an operator."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def traced() -> bool:
    """True where more than this one call depends on what is looked up now: a value inside a tensor must not decide."""
    return is_watched() or transformed() or torch.jit.is_tracing()  # type: ignore[attr-defined]


def transformed() -> bool:
    """True where `torch.func` or forward-mode differentiation is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


# What torch.compiler.assume_constant_result does; that would import the compiler, and take as long as torch itself.
transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def wanted(*sources: object) -> bool:
    """True where a gradient may be asked for with respect to any of these: if not, an estimator is its choice alone."""
    enabled = torch.is_grad_enabled()
    if enabled:
        for x in sources:
            if isinstance(x, Tensor) and x.requires_grad:
                return True
    # The level is read here, where torch.compile guards it. What torch.jit traces is meant for other tensors. Inside
    # torch.func a tensor may need a gradient without saying so.
    tracing = forward_ad._current_level >= 0 or torch.jit.is_tracing()  # type: ignore[attr-defined]
    return tracing or (enabled and transformed())


def recomputed() -> bool:
    """True where a backward pass is under way: a forward inside it is one that `torch.utils.checkpoint` runs again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def is_run_again(like: Tensor) -> Any:
    """True where a pass is run again; in compiled code, which asks when it runs and not when it is traced, a bool on
    the device of a tensor."""
    if not torch.compiler.is_compiling():
        return recomputed()
    return torch.ops.decoupled_st.is_run_again(like)


@torch.no_grad()
def write(places: Sequence[Tensor], values: Sequence[Tensor], again: "bool | Tensor") -> None:
    """Write values into buffers, but not where a pass is run again."""
    for place, value in zip(places, values, strict=True):
        if value is not place and again is not True:
            place.copy_(value if again is False else torch.where(again, place, value))


def first_value(value: Tensor, kept: Tensor, again: "bool | Tensor") -> Tensor:
    """The value; where a pass is run again and the value is one number, the number that the first run kept. A value of
    several numbers follows from the logits, and is the same in both runs."""
    if again is False or (isinstance(value, Tensor) and value.numel() != 1):
        return value
    value = torch.as_tensor(value, dtype=kept.dtype, device=kept.device).detach()
    if again is True:
        return value.copy_(kept)  # as many copies as the first time has made, which a selective checkpoint counts
    first: Tensor = torch.ops.decoupled_st.first_run(value, kept)
    return first


def _first_run(value: Tensor, kept: Tensor) -> Tensor:
    """An operator of our own, which no compiler computes twice: the backward pass would find another state."""
    return kept.clone().expand_as(value).contiguous() if recomputed() else value.clone()


_library = torch.library.Library("decoupled_st", "FRAGMENT")
# They ask what is under way: not to be recorded once and replayed.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name))
_library.define("first_run(Tensor tau, Tensor last) -> Tensor", tags=_TAGS)
_library.impl("first_run", _first_run, "CompositeExplicitAutograd")
_library.define("is_run_again(Tensor like) -> Tensor", tags=_TAGS)
_library.impl(
    "is_run_again",
    lambda like: torch.full((), recomputed(), dtype=torch.bool, device=like.device),
    "CompositeExplicitAutograd",
)
torch.library.register_fake("decoupled_st::is_run_again", lambda like: like.new_empty((), dtype=torch.bool))
torch.library.register_fake("decoupled_st::first_run", lambda tau, last: torch.empty_like(tau))
