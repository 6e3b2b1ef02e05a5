"""The value of a choice with the gradient of a softmax or a sigmoid.

Two ways to the same bits. Called eagerly with fixed temperatures, one autograd node of our own: half the operations,
and nothing kept but the probabilities. Otherwise (torch.func, torch.compile, other tensor types, a temperature that
learns) plain operations, which all of these follow.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.straight_through import emit
from decoupled_st.estimators.operations.temperature import Temperature, temper

Scale = float | Tensor


def softmax(
    hard: Tensor,
    scores: Tensor,
    largest: Tensor,
    dim: int,
    tau: Temperature,
    scale: Scale,
    dtype: torch.dtype,
    source: Tensor | None = None,
) -> Tensor:
    """The value of `hard`, with the gradient of softmax(scores / tau).

    `largest` is where a row's largest score is. `source` is whose gradient it is, where the scores are the source and
    something fixed, and `is_fixed`: one node less.
    """
    if source is not None or is_fixed(scores, tau, scale):
        z, _ = _apply_softmax(scores if source is None else source, (scores, hard, largest, dim, tau, scale))
        return z if z.dtype == dtype else z.to(dtype)
    tempered, gain = temper(scores, tau, scale)
    return emit(hard, rows.softmax(tempered, largest, dim), gain, dtype)


def sigmoid(hard: Tensor, scores: Tensor, tau: Temperature, scale: Scale, dtype: torch.dtype) -> Tensor:
    """The value of `hard`, with the gradient of sigmoid(scores / tau)."""
    if is_fixed(scores, tau, scale):
        z, _ = _apply_sigmoid(scores, (hard, tau, scale))
        return z if z.dtype == dtype else z.to(dtype)
    tempered, gain = temper(scores, tau, scale)
    return emit(hard, rows.sigmoid(tempered), gain, dtype)


def is_fixed(scores: Tensor, tau: Temperature, scale: Scale) -> bool:
    """True where a node of our own can be used: nothing transforms or traces the call, and no temperature learns."""
    plain = type(scores) in kernels.TENSORS and isinstance(scale, float) and not kernels.traced()
    fixed = plain and (isinstance(tau, float) or (type(tau) is Tensor and not tau.requires_grad))
    return fixed and not torch._C._functorch.is_functorch_wrapped_tensor(scores)  # left over from a transform


@functools.lru_cache(maxsize=256)
def number(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor. torch makes one at every operation, which takes longer than dividing a small tensor."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=dtype, device="cpu")


class _Softmax(torch.autograd.Function):
    """The probabilities are an output too, so that the gradient can be differentiated once more through them.

    What gets no gradient comes as one argument: each takes its time, and an input that is returned is copied.
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, others: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        scores, hard, largest, dim, tau, scale = others
        tau = tau if isinstance(tau, Tensor) else number(tau, scores.dtype)
        p = torch.softmax(scores / tau, dim)
        ctx.save_for_backward(p, largest, tau)
        ctx.dim, ctx.scale = dim, scale
        ctx.set_materialize_grads(False)
        return hard, p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        p, largest, tau = ctx.saved_tensors
        g = _incoming(ctx, *grads)
        if g is None:
            return None, None
        h = g - g.gather(ctx.dim, largest)  # as in `rows.softmax`, and why
        result = torch._softmax_backward_data(h, p, ctx.dim, p.dtype).div_(tau)
        return result, None


class _Sigmoid(torch.autograd.Function):
    """Likewise; the second output is that of `rows.sigmoid`: p or p - 1, whichever is the smaller."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, others: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        hard, tau, scale = others
        tau = tau if isinstance(tau, Tensor) else number(tau, scores.dtype)
        t = scores / tau
        y = torch.sigmoid(t.abs().neg_()).copysign_(t.neg_())
        ctx.save_for_backward(y, tau)
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return hard, y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        y, tau = ctx.saved_tensors
        g = _incoming(ctx, *grads)
        if g is None:
            return None, None
        result = torch.ops.aten.sigmoid_backward(g, y.abs()).div_(tau)
        return result, None


def _incoming(ctx: Any, g: Tensor | None, again: Tensor | None) -> Tensor | None:
    """The gradient of the surrogate: that of the choice, scaled, and the one of a second derivative."""
    if g is not None and ctx.scale != 1.0:
        g = g * ctx.scale
    if again is None or g is None:
        return g if again is None else again
    return g + again


# `Function.apply` looks for transforms of torch.func first, as `is_fixed` has done.
_apply_softmax: Callable[..., tuple[Tensor, Tensor]] = super(torch.autograd.Function, _Softmax).apply
_apply_sigmoid: Callable[..., tuple[Tensor, Tensor]] = super(torch.autograd.Function, _Sigmoid).apply
