"""Codebooks: what the gradient passes through, and which codes are used."""

from typing import Any

import torch
from torch import Tensor

from decoupled_st.codebook import decoupled, distribution
from decoupled_st.codebook.inputs import check_floating
from decoupled_st.estimators.surrogate import Temperature

__all__ = ["code_usage", "effective_codes", "straight_through_gain"]


def effective_codes(
    x: Tensor, codes: Tensor, *, tau_b: Temperature, metric: str = "dot", mask: Tensor | None = None
) -> Tensor:
    """How many codes share a row's surrogate: exp of the entropy of softmax(s / tau_b), one per row, [...].

    1: one code takes all, and next to no gradient passes. K: the scores say nothing at this temperature.

    Example:
        >>> import torch
        >>> codes = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 100.0]])
        >>> [round(number, 3) for number in effective_codes(x, codes, tau_b=1.0).tolist()]
        [3.0, 1.0]
    """
    with torch.no_grad():
        return distribution(x, codes, tau=tau_b, metric=metric, mask=mask).entropy.exp()


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
    check_floating("x", x)
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


def code_usage(index: Tensor, codes: int) -> Tensor:
    """The share of codes that occur in an index, over all its tokens; -1 counts as none.

    Gather the indices of a whole data set first: a batch of 1,000 tokens cannot use more than 1,000 codes.

    Args:
        index: integers in [-1, codes), of any shape. Heads or residual stages are codebooks of their own: give
            `index[..., h]`, since all together would count a code as used that any one of them uses.
        codes: how many there are.

    Example:
        >>> import torch
        >>> code_usage(torch.tensor([[0, 1], [1, 5]]), codes=8).item()
        0.375
    """
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"index must be a tensor of integers, got {index.dtype}")
    low, high = (int(index.min()), int(index.max())) if index.numel() else (-1, -1)
    if low < -1 or high >= codes:
        raise ValueError(f"index must lie in [-1, {codes}), got values from {low} to {high}")
    used = torch.zeros(codes + 1, dtype=torch.float32, device=index.device)
    used[index.flatten().long() + 1] = 1.0
    return used[1:].mean()
