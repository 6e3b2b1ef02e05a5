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

from dst_lab import estimators
from dst_lab.fleet.chooser import GIVEN_CHOICE, Draws
from dst_lab.fleet.cuda.noise import gumbel, logistic, uniform_at

IDENTITY, CLEAN = tl.constexpr(estimators.IDENTITY), tl.constexpr(estimators.CLEAN)
PERTURBED, SECOND_ORDER = tl.constexpr(estimators.PERTURBED), tl.constexpr(estimators.SECOND_ORDER)
GAPPED = tl.constexpr(estimators.GAPPED)


@triton.jit
def _noise(key, step, use, site, quad):
    """Four uniform numbers for each quad of elements, one quad behind the other along the last dim: [rows, 4 quads]."""
    zero = quad * 0
    a, b, c, d = tl.philox(key, quad, zero + site, zero + step, zero + use)
    bits = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.uint_to_uniform_float(tl.reshape(bits, (quad.shape[0], 4 * quad.shape[1])))


@triton.jit(do_not_specialize=["use", "site"])
def _binary_forward(logits, out, drawn, key, step, use, site, size, BLOCK: tl.constexpr):
    run = tl.program_id(1).to(tl.int64)
    quad = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = 4 * quad[:, None] + tl.arange(0, 4)[None, :]
    mask = at < size
    u = _noise(tl.load(key + run), tl.load(step).to(tl.int32), use, site, quad[:, None])
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
        l += logistic(_noise(tl.load(key + run), tl.load(step).to(tl.int32), use, site, quad[:, None]))
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


@triton.jit
def _softmax(l, tau):
    """softmax(l / tau) of every row."""
    e = tl.exp((l - tl.max(l, 1)[:, None]) / tau)
    return e / tl.sum(e, 1)[:, None]


@triton.jit
def _jacobian(p, h):
    """(diag(p) - p p') h of every row."""
    weighted = p * h
    return weighted - p * tl.sum(weighted, 1)[:, None]


@triton.jit
def _mean_lead(l, hit):
    """-log(1 - p) / p with p the probability of what was drawn; the forms that rounding leaves alone."""
    e = tl.exp(l - tl.max(l, 1)[:, None])
    total, own = tl.sum(e, 1)[:, None], tl.sum(tl.where(hit, e, 0.0), 1)[:, None]
    rest = tl.sum(tl.where(hit, 0.0, e), 1)[:, None]
    p = tl.maximum(own / total, 1e-30)
    kept = 1 - p  # rounded, so that its logarithm is that of another p: it is scaled by how far off that is
    small = tl.where(kept == 1, -p, tl.log(kept) * (p / tl.where(kept == 1, 1.0, 1 - kept)))
    return -tl.where(p < 0.5, small, tl.log(rest / total)) / p


@triton.jit
def _averaged(l, score, hit, h, tau, key, step, use, site, row, rows, SAMPLES: tl.constexpr, K: tl.constexpr,
              COLUMNS: tl.constexpr):  # fmt: skip
    """The sum over samples of J(p) h, with p the softmax of logits and noise that would have drawn the same."""
    result = _jacobian(_softmax(score, tau), h)
    top = tl.max(l, 1)[:, None]
    total = top + tl.log(tl.sum(tl.exp(l - top), 1)[:, None])
    for sample in range(1, SAMPLES):
        if K == COLUMNS and K % 4 == 0:  # a call of Philox gives the numbers of four columns
            quad = sample * (rows * (K // 4)) + row * (K // 4) + tl.arange(0, COLUMNS // 4)[None, :]
            u = _noise(key, step, use, site, quad)
        else:
            u = uniform_at(key, sample * (rows * K) + row * K + tl.arange(0, COLUMNS)[None, :], site, step, use)
        noise = gumbel(u)
        # With e = exp(-noise): the largest is -log(e_D / Z), each other -log(e_i / exp(l_i) + e_D / Z).
        lead = tl.sum(tl.where(hit, noise, 0.0), 1)[:, None] + total
        below = -noise - l
        high, low = tl.maximum(below, -lead), tl.minimum(below, -lead)
        result += _jacobian(_softmax(tl.where(hit, lead, -high - tl.log(1 + tl.exp(low - high))), tau), h)
    return result


@triton.jit
def through_choice(
    l, g, score, hit, tau_f, tau, gap, key, step, use, site, row, rows,
    SURROGATE: tl.constexpr, SAMPLES: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of every row's logits `l` from `g`, that of the choice, where it depends on what was drawn, which is
    where `hit` is; `score` are the logits with the noise of the draw, `rows` how many a run has."""
    if SURROGATE == SECOND_ORDER:
        largest = tl.argmax(tl.where(l == l, l, float("-inf")), 1)[:, None]
        h = g - tl.sum(tl.where(tl.arange(0, COLUMNS)[None, :] == largest, g, 0.0), 1)[:, None]
        middle = (tl.where(hit, 1.0, 0.0) + _softmax(l, tau)) / 2
        result = (2 * _jacobian(middle, h) - 0.5 * _jacobian(_softmax(l, tau_f), h)) / tau_f
    else:
        h = g - tl.sum(tl.where(hit, g, 0.0), 1)[:, None]
        if SURROGATE == GAPPED:
            lead = tl.where(gap != gap, _mean_lead(l, hit), gap)
            top = tl.max(l, 1)[:, None]
            result = _jacobian(_softmax(tl.where(hit, top, tl.minimum(l, top - lead)), tau), h) / tau
        else:
            result = _averaged(l, score, hit, h, tau, key, step, use, site, row, rows, SAMPLES, K, COLUMNS)
            result /= SAMPLES * tau
    return result


@triton.jit(do_not_specialize=["use", "site"])
def _backward_given_choice(
    logits, grad, out, drawn, surrogate, key, step, use, site, rows, gap,
    SURROGATE: tl.constexpr, SAMPLES: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Where the gradient depends on what was drawn, which is drawn again."""
    run = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    element = row * K + column
    mask = (row < rows) & (column < K)
    l = tl.where(column < K, tl.load(logits + run * rows * K + element, mask, 0.0), float("-inf"))
    g = tl.load(grad + run * rows * K + element, mask, 0.0)
    of_run, now = tl.load(key + run), tl.load(step).to(tl.int32)
    tau_f, tau = tl.load(drawn + run), tl.load(surrogate + run)
    score = l + tau_f * gumbel(uniform_at(of_run, element, site, now, use))
    hit = column == tl.argmax(tl.where(score < float("inf"), score, float("-inf")), 1)[:, None]
    result = through_choice(
        l, g, score, hit, tau_f, tau, gap, of_run, now, use, site, row, rows, SURROGATE, SAMPLES, K, COLUMNS
    )
    tl.store(out + run * rows * K + element, result, mask)


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
    if draws.through in GIVEN_CHOICE:
        given = {"SURROGATE": draws.through, "SAMPLES": draws.samples, **options}
        _backward_given_choice[grid](*common[:3], draws.drawn, *common[3:], size, draws.gap, **given)
        return out
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
