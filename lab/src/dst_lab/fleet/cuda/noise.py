"""Random numbers of a run on CUDA: Philox, keyed by its seed and counted by where the number is used."""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def uniform_at(key, element, site, step, use):
    """The uniform number of each element, recomputed wherever it is needed.

    One Philox call gives four numbers, those of the elements 4 i to 4 i + 3. Its counter is (i, site, step, use).
    """
    zero = element * 0
    a, b, c, d = tl.philox(key, element // 4, zero + site, zero + step, zero + use)
    lane = element % 4
    return tl.uint_to_uniform_float(tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d)))


@triton.jit
def inside(u):
    """Away from 0 and 1 as in `decoupled_st.estimators.operations.noise`, for float32."""
    return tl.minimum(tl.maximum(u, 2.0**-25), 1 - 2.0**-24)


@triton.jit
def gumbel(u):
    """Uniform to standard Gumbel noise."""
    return -tl.log(-tl.log(inside(u)))


@triton.jit
def logistic(u):
    """Uniform to standard logistic noise."""
    u = inside(u)
    return tl.log(u / (1 - u))


@triton.jit
def _uniform_kernel(out, key, step, use, site, size, BLOCK: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    quad = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = quad * 0
    count = tl.load(step).to(tl.int32)
    a, b, c, d = tl.philox(tl.load(key + run), quad, zero + site, zero + count, zero + use)
    first = out + run * size + 4 * quad
    tl.store(first, tl.uint_to_uniform_float(a), 4 * quad < size)
    tl.store(first + 1, tl.uint_to_uniform_float(b), 4 * quad + 1 < size)
    tl.store(first + 2, tl.uint_to_uniform_float(c), 4 * quad + 2 < size)
    tl.store(first + 3, tl.uint_to_uniform_float(d), 4 * quad + 3 < size)


def philox_uniform(key: Tensor, step: Tensor, use: int, site: int, shape: Sequence[int]) -> Tensor:
    """[runs, *shape] from [0, 1), a function of each run's key and of (step, use, site) alone."""
    size = math.prod(shape)
    out = torch.empty(len(key), *shape, device=key.device)
    block = 256
    grid = (triton.cdiv(size, 4 * block), len(key))
    _uniform_kernel[grid](out, key, step, int(use), site, size, BLOCK=block)
    return out
