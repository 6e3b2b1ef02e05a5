"""Numbers that are the same in every run."""

import torch
from torch import Tensor


def random(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal ones, in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def single(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal ones, in float32."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gumbel(*shape: int, seed: int = 9) -> Tensor:
    u = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return -(-u.log()).log()
