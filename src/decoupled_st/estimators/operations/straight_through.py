"""The straight-through step itself: one tensor's value, another's gradient."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from decoupled_st import kernels

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


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


def wanted(*sources: object) -> bool:
    """True where a gradient may be asked for with respect to any of these: if not, an estimator is its choice alone."""
    # The level is read here, where torch.compile guards it. What torch.jit traces is meant for other tensors.
    if forward_ad._current_level >= 0 or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return True
    if not torch.is_grad_enabled():
        return False
    for x in sources:
        if isinstance(x, Tensor) and x.requires_grad:
            return True
    # Inside torch.func a tensor may need a gradient without saying so.
    return kernels.transformed()


def recomputed() -> bool:
    """True where a backward pass is under way: a forward inside it is one that `torch.utils.checkpoint` runs again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def check_logits(logits: Tensor) -> None:
    """Refuse what is no floating-point tensor."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}")
    if logits.dtype not in _DTYPES:
        wide = " (float16, bfloat16, float32 or float64)" if logits.is_floating_point() else ""
        raise TypeError(f"logits must be a floating-point tensor{wide}, got {logits.dtype}")
    if logits.layout is not torch.strided:
        raise TypeError(f"logits must be a dense tensor, got layout {logits.layout}")
    if logits.is_nested:
        raise TypeError(
            "logits must be a dense tensor, got a nested one: torch.nested.to_padded_tensor makes it padded"
        )


def to_compute(value: Tensor, logits: Tensor) -> Tensor:
    """A tensor in the dtype to compute in: the logits' own, but at least float32."""
    dtype = logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32
    return value if value.dtype == dtype else value.to(dtype)
