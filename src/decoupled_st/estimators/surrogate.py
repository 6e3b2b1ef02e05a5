"""The value of a choice with the gradient of a softmax or a sigmoid.

Two ways to the same bits. Called eagerly with fixed temperatures, one autograd node of our own: half the operations,
and nothing kept but the probabilities. Otherwise (torch.func, torch.compile, other tensor types, a temperature that
learns) plain operations, which all of these follow.
"""

from typing import Any

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators import rows
from decoupled_st.estimators.straight_through import emit
from decoupled_st.estimators.temperature import Temperature, temper

Scale = float | Tensor


def softmax(
    hard: Tensor, scores: Tensor, largest: Tensor, dim: int, tau: Temperature, scale: Scale, dtype: torch.dtype
) -> Tensor:
    """The value of `hard`, with the gradient of softmax(scores / tau); `largest` is where a row's largest score is."""
    if is_fixed(scores, tau, scale):
        z, _ = _Softmax.apply(scores, hard, largest, dim, tau, scale)  # type: ignore[no-untyped-call]
        return z if z.dtype == dtype else z.to(dtype)
    tempered, gain = temper(scores, tau, scale)
    return emit(hard, rows.softmax(tempered, largest, dim), gain, dtype)


def sigmoid(hard: Tensor, scores: Tensor, tau: Temperature, scale: Scale, dtype: torch.dtype) -> Tensor:
    """The value of `hard`, with the gradient of sigmoid(scores / tau)."""
    if is_fixed(scores, tau, scale):
        z, _ = _Sigmoid.apply(scores, hard, tau, scale)  # type: ignore[no-untyped-call]
        return z if z.dtype == dtype else z.to(dtype)
    tempered, gain = temper(scores, tau, scale)
    return emit(hard, rows.sigmoid(tempered), gain, dtype)


def is_fixed(scores: Tensor, tau: Temperature, scale: Scale) -> bool:
    """True where a node of our own can be used: nothing transforms or traces the call, and no temperature learns."""
    plain = type(scores) is Tensor and isinstance(scale, float) and not kernels.traced()
    return plain and (isinstance(tau, float) or (type(tau) is Tensor and not tau.requires_grad))


class _Softmax(torch.autograd.Function):
    """The probabilities are an output too, so that the gradient can be differentiated once more through them."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, hard: Tensor, largest: Tensor, dim: int, tau: Temperature, scale: float
    ) -> tuple[Tensor, Tensor]:
        p = torch.softmax(scores / tau, dim)
        ctx.save_for_backward(p, largest, *([tau] if isinstance(tau, Tensor) else []))
        ctx.dim, ctx.tau, ctx.scale = dim, tau if isinstance(tau, float) else None, scale
        ctx.set_materialize_grads(False)
        return hard, p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        p, largest, *tau = ctx.saved_tensors
        g = _incoming(ctx, *grads)
        if g is None:
            return (None,) * 6
        h = g - g.gather(ctx.dim, largest)  # as in `rows.softmax`, and why
        result = torch._softmax_backward_data(h, p, ctx.dim, p.dtype) / (tau[0] if tau else ctx.tau)
        return (result, *(None,) * 5)


class _Sigmoid(torch.autograd.Function):
    """Likewise; the second output is that of `rows.sigmoid`: p or p - 1, whichever is the smaller."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, hard: Tensor, tau: Temperature, scale: float) -> tuple[Tensor, Tensor]:
        t = scores / tau
        y = torch.sigmoid(t.abs().neg_()).copysign_(t.neg_())
        ctx.save_for_backward(y, *([tau] if isinstance(tau, Tensor) else []))
        ctx.tau, ctx.scale = tau if isinstance(tau, float) else None, scale
        ctx.set_materialize_grads(False)
        return hard, y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        y, *tau = ctx.saved_tensors
        g = _incoming(ctx, *grads)
        if g is None:
            return (None,) * 4
        result = torch.ops.aten.sigmoid_backward(g, y.abs()) / (tau[0] if tau else ctx.tau)
        return (result, *(None,) * 3)


def _incoming(ctx: Any, g: Tensor | None, again: Tensor | None) -> Tensor | None:
    """The gradient of the surrogate: that of the choice, scaled, and the one of a second derivative."""
    if g is not None and ctx.scale != 1.0:
        g = g * ctx.scale
    if again is None or g is None:
        return g if again is None else again
    return g + again
