"""How much of the gradient at q reaches x."""

from typing import Any

import torch
from torch import Tensor

from decoupled_st.codebook.choice import decoupled
from decoupled_st.estimators.surrogate import Temperature


@torch.inference_mode(False)
def straight_through_gain(
    x: Tensor,
    codes: Tensor,
    *,
    tau_b: Temperature,
    metric: str = "dot",
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The gain of the straight-through path, |dL/dx| / |dL/dq| for a random direction of dL/dq, one per row, [...].

    With dot products dL/dx = Cov_p(e) dL/dq / tau_b, where p = softmax(s / tau_b). Where one code takes all of p, or
    the codes are tiny, the covariance is next to nothing and the encoder hears nothing of the loss: look at this
    number before a long run. A gain of 1 is that of VQ-VAE's copied gradient.

    Args:
        x, codes: as in `codebook.decoupled`.
        tau_b: the backward temperature.
        metric, mask: as in `codebook.decoupled`.
        generator: draws the directions.

    Example:
        >>> import torch
        >>> x, codes = torch.randn(100, 64), torch.randn(512, 64)
        >>> tiny = straight_through_gain(x, codes / 512, tau_b=1.0).median()
        >>> bool(tiny < 1e-4 < straight_through_gain(x, codes / 8, tau_b=1.0).median())
        True
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"x must be a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    direction = torch.randn(x.shape, dtype=torch.float32, device=x.device, generator=generator).to(x.dtype)
    # Hooks of our own: what this keeps for its own backward is not part of a checkpoint that it may be called in.
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        leaf, fixed, tau, allowed = (_for_autograd(value) for value in (x, codes, tau_b, mask))
        q, _ = decoupled(leaf.requires_grad_(), fixed, tau_f=0.0, tau_b=tau, metric=metric, mask=allowed)
        (gradient,) = torch.autograd.grad(q, leaf, direction.to(q.dtype))
    return torch.linalg.vector_norm(gradient.float(), dim=-1) / torch.linalg.vector_norm(direction.float(), dim=-1)


def _for_autograd(value: Any) -> Any:
    """A tensor without its gradient; a copy of one that inference mode made, since autograd keeps none such."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone() if value.is_inference() else value.detach()
