"""Counter-based Gumbel noise in plain torch: a function of a seed, a row and a column, from the kernels' own bits.

Philox takes (column / 4, row) as its counter and the seed as its key, and gives four columns their 32 bits. So neither
the size of a tile nor the order of tiles changes a draw, and backward can make the noise again.
"""

import torch
from torch import Tensor

from decoupled_st.noise import gumbel_of_bits, philox


def seed_tensor(seed: int | Tensor | None, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """The seed of a call, int64 [1] on the device: the caller's, or drawn from torch's generator or the given one."""
    if isinstance(seed, Tensor):
        return seed.reshape(1).to(device)
    if seed is not None:
        return torch.full((1,), seed, dtype=torch.int64, device=device)
    if generator is None:
        return torch.randint(1 << 62, (1,), device=device)
    # torch.compile cannot trace a generator: it runs this eagerly, or with fullgraph=True quotes the line in its error.
    return torch.randint(1 << 62, (1,), device=device, generator=generator)  # pass a tensor as seed= instead


def gumbel(seed: Tensor, row: Tensor, quad: Tensor, dtype: torch.dtype) -> Tensor:
    """Standard Gumbel noise [n, 4 q] of rows [n, 1] and quarters of columns [n or 1, q]."""
    return gumbel_of_bits(torch.stack(philox(seed, quad, row), -1).flatten(-2), dtype)
