"""Adam with one learning rate a run, as a kernel and as a part of others."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BETA1, BETA2, EPS = tl.constexpr(0.9), tl.constexpr(0.999), tl.constexpr(1e-8)
LOG1, LOG2 = tl.constexpr(math.log(0.9)), tl.constexpr(math.log(0.999))


@triton.jit
def corrections(count):
    """1 - beta^count of both moments. In float64: with beta near 1, float32 would lose four digits in early steps."""
    count = count.to(tl.float64)
    return (1 - tl.exp(count * LOG1)).to(tl.float32), (1 - tl.exp(count * LOG2)).to(tl.float32)


@triton.jit
def step(p, m, v, grad, lr, count):
    """The `count`-th update: new parameters and moments from the old ones."""
    correction1, correction2 = corrections(count)
    m = BETA1 * m + (1 - BETA1) * grad
    v = BETA2 * v + (1 - BETA2) * grad * grad
    return p - lr * (m / correction1) / (tl.sqrt(v / correction2) + EPS), m, v


@triton.jit
def update(p, m, v, at, mask, grad, lr, count):
    """The same for what lies at `at`, in place."""
    new_p, new_m, new_v = step(
        tl.load(p + at, mask, 0.0), tl.load(m + at, mask, 0.0), tl.load(v + at, mask, 0.0), grad, lr, count
    )
    tl.store(p + at, new_p, mask)
    tl.store(m + at, new_m, mask)
    tl.store(v + at, new_v, mask)


@triton.jit
def _adam_kernel(p, g, m, v, lr, count, size, BLOCK: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    at = run * size + at
    update(p, m, v, at, mask, tl.load(g + at, mask), tl.load(lr + run), tl.load(count))


def adam_step(p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Tensor, step: Tensor) -> None:
    """Adam's update of `p`, `m` and `v` [runs, ...] in place, with learning rates [runs]."""
    size, block = p[0].numel(), 1024
    grid = (triton.cdiv(size, block), len(lr))
    _adam_kernel[grid](p, g.contiguous(), m, v, lr, torch.as_tensor(step), size, BLOCK=block)
