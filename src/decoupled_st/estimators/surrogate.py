"""The step that joins the value of a choice to the gradient of a surrogate of its scores.

The surrogate is a softmax or a sigmoid of the scores. As called in ordinary training its gradient comes from one
autograd node, which keeps only the probabilities. Under torch.func, torch.compile, with other tensor types or a
temperature that learns it comes from plain operations, which all of these can follow.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor

from decoupled_st import kernels

Temperature: TypeAlias = float | Tensor


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The value of `hard`, exactly, with the gradient of `soft` (the paper's Algorithm 1, for any surrogate).

        z = hard + (soft - stop_gradient(soft))

    The bracket is zero, so the sum is exact in every dtype; `(hard + soft) - soft` is not. It is made of plain
    operations and therefore right under autograd, `torch.func`, `torch.compile` and any nesting of them. The gradient
    is meant to be taken once: a second derivative is that of the surrogate.

    Args:
        hard: the discrete values; no gradient flows into them.
        soft: the surrogate, of the same shape and finite (a non-finite surrogate shows as NaN).

    Example:
        >>> import torch
        >>> x = torch.tensor([-0.3, 0.8, 2.0], requires_grad=True)
        >>> z = straight_through(x.sign(), x.clamp(-1, 1))   # a sign whose gradient is the clipped identity
        >>> z.sum().backward()
        >>> z.tolist(), x.grad.tolist()
        ([-1.0, 1.0, 1.0], [1.0, 1.0, 0.0])
    """
    for name, value in (("hard", hard), ("soft", soft)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if hard.shape != soft.shape:
        raise ValueError(
            f"hard and soft must have one shape: hard has {tuple(hard.shape)}, soft has {tuple(soft.shape)}"
        )
    return emit(hard.detach(), soft, 1.0, torch.promote_types(hard.dtype, soft.dtype))


def emit(hard: Tensor, soft: Tensor, gain: float, dtype: torch.dtype) -> Tensor:
    """An estimator's output: the value of `hard`, the gradient of `soft` times `gain`, in the given dtype."""
    path = soft - soft.detach()
    if kernels.is_watched():
        # Zero once more: a compiler may fuse the product that made soft into the line above, and leave its rounding.
        path = path - path.detach()
    if gain != 1.0:
        path = path * gain
    return (hard + path).to(dtype)


def relative(p: Tensor, largest: Tensor, dim: int) -> Tensor:
    """A function with the derivative of rows p that always have the same sum, such as softmax(l).

        p_i for every category but the largest, k;   p_k - sum of all p = -(sum of the others) for it

    Its gradient, p_i (h_i - sum p h) with h = g - g_k, has no difference of nearly equal numbers: the plain one loses
    g_k - sum p g, and with it the gradient of the one category that matters, once p_k rounds to 1.
    """
    return p.scatter_add(dim, largest, -p.sum(dim, keepdim=True))


def sigmoid(tempered: Tensor) -> Tensor:
    """A function with the derivative of `sigmoid(tempered)`, accurate in both tails.

        sigmoid(t) where t <= 0,   -sigmoid(-t) = sigmoid(t) - 1 where t > 0

    Its derivative is p (1 - p) with p <= 1/2; from a p that rounds to 1 nothing would be left.
    """
    flip = 1 - 2 * (tempered.detach() > 0).to(torch.int8)
    return torch.sigmoid(tempered * flip) * flip


class Node(torch.autograd.Function):
    """The value of `hard` with a surrogate's gradient: the sum of weight * J(p), J(p) = diag(p) - p p', divided by tau;
    for binary neurons, which have no `dim`, |p| (1 - |p|) / tau. No temperature learns by it.

    The probabilities are outputs too, so that the gradient of a single term can be differentiated once more through
    them. What gets no gradient comes as one argument: each takes its time.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, others: tuple[Any, ...]) -> tuple[Tensor, ...]:
        hard, largest, tau, ps, *ctx.rest = others
        ctx.tau = None if isinstance(tau, Tensor) else tau
        ctx.save_for_backward(*ps, largest, tau if ctx.tau is None else None)
        ctx.set_materialize_grads(False)
        if len(ps) > 1:
            ctx.mark_non_differentiable(*ps)
        return (hard, *ps)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *again: Tensor | None) -> tuple[Tensor | None, None]:
        (dim, scale, weights), (p, *rest, largest, tau) = ctx.rest, ctx.saved_tensors
        if g is not None and scale != 1.0:
            g = g * scale
        if again[0] is not None:  # of a second derivative
            g = again[0] if g is None else g + again[0]
        if g is None:
            return None, None
        if dim is None:
            result = torch.ops.aten.sigmoid_backward.default(g, p.abs())
        else:
            h = g - g.gather(dim, largest)  # as in `relative`, and why
            result = jacobian(p, h, dim)
            if rest:
                result = weights[0] * result + weights[1] * jacobian(rest[0], h, dim)
        return result.div_(tau if ctx.tau is None else ctx.tau), None


def jacobian(p: Tensor, h: Tensor, dim: int) -> Tensor:
    """J(p) h, J(p) = diag(p) - p p': the gradient of a softmax row."""
    return torch._softmax_backward_data(h, p, dim, p.dtype)


def temper(scores: Tensor, tau: Temperature, grad_scale: float | Tensor) -> tuple[Tensor, float]:
    """`scores / tau`, and the part of `grad_scale` that is left for the output.

    Two floats: dividing by a float keeps nothing for backward, and a float commutes with every Jacobian, so the
    scale goes to the output. With a tensor it must act on the scores alone (not on a learned tau, not before the
    Jacobian), and scores whose quotient is infinite must stay out of tau's gradient, where they would be 0 * inf.
    """
    if isinstance(tau, float) and isinstance(grad_scale, float):
        return scores / tau, grad_scale
    fixed_tau = tau.detach() if isinstance(tau, Tensor) else tau
    quotient = scores.detach() / fixed_tau
    infinite = quotient.isinf()
    finite = scores.masked_fill(infinite, 0.0)
    fixed = finite.detach()
    finite = fixed + (finite - fixed) * grad_scale
    # The factor is 1; its derivative, -1/tau, is applied to a sum of small numbers. scores / tau^2 would be infinite.
    return torch.where(infinite, quotient, finite / fixed_tau * (fixed_tau / tau)), 1.0


def shifted(l: Tensor, to: Tensor) -> Tensor:
    """The value of `to` with the derivative of the logits; -inf stays itself."""
    fixed = l.detach()
    return l + (to.detach() - fixed).masked_fill(fixed.isinf(), 0.0)


def can_look(values: Tensor) -> bool:
    """True where looking at values is cheaper than being careful: on a CPU, where no device is waited for."""
    return type(values) is Tensor and values.is_cpu and not kernels.traced()


def scattered(count: int, few: int, device: torch.device) -> Tensor:
    """The places of a few of so many rows, from all over them: one in each of as many equal parts.

    The first rows would be one sample, or the edge of an image, and evenly spaced ones may be the same place of every
    sequence or image. Within their parts these move by the golden ratio, which no layout has a period in common with.
    """
    part = torch.arange(few + 1, device=device)
    start = part * count // few
    golden = 2654435769  # 2^32 / 1.618...
    return start[:-1] + ((part[:-1] * golden % 2**32) * start.diff() >> 32)
