"""Triton kernels of the fleet's step on CUDA: per-run random numbers and per-run Adam."""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _uniform_kernel(out, key, step, use, site, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One Philox call gives four numbers; its counter is (element / 4, site, step, use), its key the run's seed."""
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


@triton.jit  # type: ignore[untyped-decorator]
def _adam_kernel(p, g, m, v, lr, step, size, beta1, beta2, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    run = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    at = run * size + at
    count = tl.load(step).to(tl.float32)
    grad = tl.load(g + at, mask)
    mean = beta1 * tl.load(m + at, mask) + (1 - beta1) * grad
    square = beta2 * tl.load(v + at, mask) + (1 - beta2) * grad * grad
    # 1 - beta^t, by the exponential: beta is near 1 and t large.
    correction1 = 1 - tl.exp(count * tl.log(beta1))
    correction2 = 1 - tl.exp(count * tl.log(beta2))
    update = (mean / correction1) / (tl.sqrt(square / correction2) + eps)
    tl.store(m + at, mean, mask)
    tl.store(v + at, square, mask)
    tl.store(p + at, tl.load(p + at, mask) - tl.load(lr + run) * update, mask)


def adam_step(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Tensor, step: Tensor, constants: tuple[float, float, float]
) -> None:
    """Adam's update of `p`, `m` and `v` [runs, ...] in place, with learning rates [runs]."""
    size, block = p[0].numel(), 1024
    grid = (triton.cdiv(size, block), len(lr))
    _adam_kernel[grid](p, g.contiguous(), m, v, lr, step, size, *constants, BLOCK=block)
