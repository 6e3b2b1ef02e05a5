"""Noise by counter: random numbers that are a function of a seed and of where they are used, and of nothing else.

For runs that are trained side by side, each with a seed of its own, in one tensor [runs, ...]: who shares the tensor
changes no run's numbers, and a run that is resumed draws on. The functions of `decoupled_st.categorical` and
`decoupled_st.binary` take the result as `noise=`.

Philox-4x32-10 (Salmon et al., 2011) takes the seed as its key and (element / 4, *counter) as its counter, and gives
four elements their 32 bits. On CUDA it is one kernel, elsewhere plain operations.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from decoupled_st import kernels

Counter = tuple[int | Tensor, int, int]
_LOW = 0xFFFFFFFF
_ROUNDS = ((0xD2511F53, 0x9E3779B9), (0xCD9E8D57, 0xBB67AE85))

__all__ = ["gumbel", "logistic", "uniform"]


def gumbel(seeds: Tensor, shape: Sequence[int], counter: Counter) -> Tensor:
    """Standard Gumbel noise [runs, *shape], float32.

    Args:
        seeds: int64 [runs], on the device of the result.
        shape: of a run's part.
        counter: three numbers below 2^31 that say where the noise is used, such as the step of training, the layer and
            the purpose. The first may be a tensor without dimensions, which a captured CUDA graph reads at each replay.

    Example:
        >>> import torch, decoupled_st as dst
        >>> pair = dst.noise.gumbel(torch.tensor([3, 7]), (4, 10), counter=(0, 0, 0))
        >>> alone = dst.noise.gumbel(torch.tensor([7]), (4, 10), counter=(0, 0, 0))
        >>> torch.equal(pair[1], alone[0])
        True
    """
    return _noise("gumbel", seeds, shape, counter)


def logistic(seeds: Tensor, shape: Sequence[int], counter: Counter) -> Tensor:
    """Standard logistic noise [runs, *shape], float32; the arguments are those of `gumbel`."""
    return _noise("logistic", seeds, shape, counter)


def uniform(seeds: Tensor, shape: Sequence[int], counter: Counter) -> Tensor:
    """Multiples of 2^-24 from [0, 1), [runs, *shape], float32; the arguments are those of `gumbel`."""
    return _noise("uniform", seeds, shape, counter)


def _noise(kind: str, seeds: Tensor, shape: Sequence[int], counter: Counter) -> Tensor:
    if kernels.know(torch.empty(0, device=seeds.device)) and not kernels.traced():
        from decoupled_st.kernels.noise import write_runs

        return write_runs(kind, seeds, shape, counter)
    size = math.prod(shape)
    quad = torch.arange(-(-size // 4), device=seeds.device)
    words = philox(seeds[:, None], quad, *(torch.as_tensor(part, device=seeds.device) for part in counter))
    bits = torch.stack(words, -1).flatten(-2)[:, :size]
    return _OF_BITS[kind](bits).reshape(len(seeds), *shape)


def philox(seed: Tensor, *counter: Tensor) -> tuple[Tensor, ...]:
    """Four words of 32 random bits, each in an int64, of a counter of up to four numbers, the others 0."""
    (multiply_a, raise_a), (multiply_b, raise_b) = _ROUNDS
    key_a, key_b = seed & _LOW, (seed >> 32) & _LOW
    c0, c1, c2, c3 = (*(part & _LOW for part in counter), *[torch.zeros_like(counter[0])] * (4 - len(counter)))
    for _ in range(10):
        # int64 wraps around as uint64 does, so the product's 64 bits are right and only the shift needs the mask.
        a, b = c0 * multiply_a, c2 * multiply_b
        c0, c2 = ((b >> 32) & _LOW) ^ c1 ^ key_a, ((a >> 32) & _LOW) ^ c3 ^ key_b
        c1, c3 = b & _LOW, a & _LOW
        key_a, key_b = (key_a + raise_a) & _LOW, (key_b + raise_b) & _LOW
    return tuple(torch.broadcast_tensors(c0, c1, c2, c3))


def gumbel_of_bits(bits: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard Gumbel noise of 32 random bits each: -log(-log(1 - u))."""
    # The largest noise, which decides the choice, comes from small u, where floats are dense.
    u = (bits.to(dtype) + 0.5) * 2.0**-32
    return -torch.log(-torch.log1p(-u.clamp(max=1 - 2.0**-24)))


def _logistic_of_bits(bits: Tensor) -> Tensor:
    """The size from 31 bits, both tails alike, and the sign from one."""
    u = ((bits >> 1).float() + 0.5) * 2.0**-32
    size = torch.log1p(-u) - torch.log(u)
    return torch.where(bits & 1 == 0, size, -size)


_OF_BITS = {
    "gumbel": gumbel_of_bits,
    "logistic": _logistic_of_bits,
    "uniform": lambda bits: (bits >> 8).float() * 2.0**-24,
}
