"""Counter-based Gumbel noise in plain torch: a function of a seed, a row and a column, from the kernels' own bits.

Philox-4x32-10 takes (column / 4, row) as its counter and the seed as its key, and gives four columns their 32 bits. So
neither the size of a tile nor the order of tiles changes a draw, and backward can make the noise again.
"""

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_ROUNDS = ((0xD2511F53, 0x9E3779B9), (0xCD9E8D57, 0xBB67AE85))


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
    bits = torch.stack(torch.broadcast_tensors(*_philox(seed, quad, row)), -1).flatten(-2)
    # -log(-log(1 - u)): the largest noise, which decides the choice, comes from small u, where floats are dense.
    u = (bits.to(dtype) + 0.5) * 2.0**-32
    return -torch.log(-torch.log1p(-u.clamp(max=1 - 2.0**-24)))


def _philox(seed: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits, each in an int64, of the counter (first, second, 0, 0)."""
    (multiply_a, raise_a), (multiply_b, raise_b) = _ROUNDS
    key_a, key_b = seed & _LOW, (seed >> 32) & _LOW
    c0, c1 = first & _LOW, second & _LOW
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c1)
    for _ in range(10):
        # int64 wraps around as uint64 does, so the product's 64 bits are right and only the shift needs the mask.
        a, b = c0 * multiply_a, c2 * multiply_b
        c0, c2 = ((b >> 32) & _LOW) ^ c1 ^ key_a, ((a >> 32) & _LOW) ^ c3 ^ key_b
        c1, c3 = b & _LOW, a & _LOW
        key_a, key_b = (key_a + raise_a) & _LOW, (key_b + raise_b) & _LOW
    return c0, c1, c2, c3
