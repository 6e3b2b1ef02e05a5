"""Discrete choices of a fleet on CUDA, one pass forward and one backward; the noise is recomputed, never stored.

What is computed is what `decoupled_st.categorical` and `decoupled_st.binary` say, for logits [runs, ...] in float32,
one temperature per run, and noise that is a function of the run's seed and of where it is used.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dst_lab.configs import estimators
from dst_lab.fleet.chooser import Draws
from dst_lab.fleet.cuda.noise import gumbel, logistic, uniform_at

IDENTITY, PERTURBED = tl.constexpr(estimators.IDENTITY), tl.constexpr(estimators.PERTURBED)


@triton.jit
def _noise(key, step, use, site, quad):
    """Four uniform numbers for each quad of elements, [quads, 4]."""
    zero = quad * 0
    a, b, c, d = tl.philox(key, quad, zero + site, zero + step, zero + use)
    bits = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.uint_to_uniform_float(tl.reshape(bits, (quad.shape[0], 4)))


@triton.jit(do_not_specialize=["use", "site"])
def _binary_forward(logits, out, drawn, key, step, use, site, size, BLOCK: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    quad = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = 4 * quad[:, None] + tl.arange(0, 4)[None, :]
    mask = at < size
    u = _noise(tl.load(key + run), tl.load(step).to(tl.int32), use, site, quad)
    score = tl.load(logits + run * size + at, mask, 0.0) + tl.load(drawn + run) * logistic(u)
    z = tl.where(score > 0, 1.0, 0.0)
    tl.store(out + run * size + at, tl.where(score != score, score, z), mask)


@triton.jit
def binary_slope(l, tau):
    """The derivative of sigmoid(l / tau)."""
    # p (1 - p) as e / (1 + e)^2 with e = exp(-|l| / tau): no overflow, and exact zeros where it is 0.
    e = tl.exp(-tl.abs(l) / tau)
    return e / ((1 + e) * (1 + e) * tau)


@triton.jit(do_not_specialize=["use", "site"])
def _binary_backward(
    logits, grad, out, surrogate, key, step, use, site, size, SURROGATE: tl.constexpr, BLOCK: tl.constexpr
):
    run = tl.program_id(1).to(tl.int64)
    quad = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = 4 * quad[:, None] + tl.arange(0, 4)[None, :]
    mask = at < size
    l = tl.load(logits + run * size + at, mask, 0.0)
    if SURROGATE == PERTURBED:
        l += logistic(_noise(tl.load(key + run), tl.load(step).to(tl.int32), use, site, quad))
    g = tl.load(grad + run * size + at, mask, 0.0)
    tl.store(out + run * size + at, g * binary_slope(l, tl.load(surrogate + run)), mask)


@triton.jit(do_not_specialize=["use", "site"])
def _categorical_forward(
    logits, out, drawn, key, step, use, site, rows, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    run = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    element = row * K + column
    mask = (row < rows) & (column < K)
    score = tl.load(logits + run * rows * K + element, mask, float("-inf"))
    noise = gumbel(uniform_at(tl.load(key + run), element, site, tl.load(step).to(tl.int32), use))
    score = tl.where(mask, score + tl.load(drawn + run) * noise, float("-inf"))
    fine = score < float("inf")
    z = tl.where(column == tl.argmax(tl.where(fine, score, float("-inf")), 1)[:, None], 1.0, 0.0)
    bad = tl.sum(tl.where(mask & ~fine, 1, 0), 1)[:, None] > 0
    tl.store(out + run * rows * K + element, tl.where(bad, float("nan"), z), mask)


@triton.jit(do_not_specialize=["use", "site"])
def _categorical_backward(
    logits, grad, out, surrogate, key, step, use, site, rows,
    SURROGATE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    element = row * K + column
    mask = (row < rows) & (column < K)
    l = tl.load(logits + run * rows * K + element, mask, 0.0)
    if SURROGATE == PERTURBED:
        l += gumbel(uniform_at(tl.load(key + run), element, site, tl.load(step).to(tl.int32), use))
    tau = tl.load(surrogate + run)
    l = tl.where(column < K, l, float("-inf"))
    e = tl.exp((l - tl.max(l, 1)[:, None]) / tau)
    p = e / tl.sum(e, 1)[:, None]
    g = tl.load(grad + run * rows * K + element, mask, 0.0)
    # Relative to the largest category's, so that where its p rounds to 1 nothing is lost in the difference.
    largest = tl.argmax(tl.where(l == l, l, float("-inf")), 1)[:, None]
    g -= tl.sum(tl.where(column == largest, g, 0.0), 1)[:, None]
    tl.store(out + run * rows * K + element, p * (g - tl.sum(p * g, 1)[:, None]) / tau, mask)


def draw(logits: Tensor, draws: Draws, kind: str, dtype: torch.dtype) -> Tensor:
    """0 or 1 for contiguous log-odds, or one-hot along the last dim; `kind` is which."""
    out = torch.empty_like(logits, dtype=dtype)
    common = (logits, out, draws.drawn, draws.key, draws.step, draws.use, draws.site)
    grid, size, options = _shape(logits, kind)
    (_binary_forward if kind == "binary" else _categorical_forward)[grid](*common, size, **options)
    return out


def through(logits: Tensor, grad: Tensor, draws: Draws, kind: str) -> Tensor:
    """The gradient of the logits from that of the choice, both contiguous."""
    if draws.through == IDENTITY.value:
        return grad
    out = torch.empty_like(logits)
    common = (logits, grad, out, draws.surrogate, draws.key, draws.step, draws.use, draws.site)
    grid, size, options = _shape(logits, kind)
    kernel = _binary_backward if kind == "binary" else _categorical_backward
    kernel[grid](*common, size, SURROGATE=draws.through, **options)
    return out


class _Choose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, draws: Draws, kind: str) -> Tensor:
        logits = logits.contiguous()
        ctx.save_for_backward(logits)
        ctx.how = draws, kind
        return draw(logits, draws, kind, logits.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (logits,) = ctx.saved_tensors
        return through(logits, gradients[0].contiguous(), *ctx.how), None, None


def _shape(logits: Tensor, kind: str) -> tuple[tuple[int, int], int, dict[str, int]]:
    """Grid, size of a run (elements or rows), and the kernel's constants."""
    size = math.prod(logits.shape[1:])
    if kind == "binary":
        return (triton.cdiv(size, 4 * 256), len(logits)), size, {"BLOCK": 256}
    k = logits.shape[-1]
    columns = triton.next_power_of_2(k)
    rows = max(1, 1024 // columns)
    return (triton.cdiv(size // k, rows), len(logits)), size // k, {"K": k, "ROWS": rows, "COLUMNS": columns}


def choose(logits: Tensor, draws: Draws, kind: str) -> Tensor:
    """0 or 1 for log-odds, or one-hot along the last dim, with the estimator's gradient; `kind` is which."""
    return _Choose.apply(logits, draws, kind)
