"""Codebooks: what the gradient passes through, and which codes are used."""

import torch
from torch import Tensor

from decoupled_st.codebook.distribution import distribution
from decoupled_st.codebook.gain import straight_through_gain
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
