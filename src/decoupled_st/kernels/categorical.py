"""The kernels of choices among categories, and their launches; see `choice`.

A row of up to 16,384 categories is held on chip, several rows per program where they are short. A longer one is walked
through in blocks, one program per row, and read again from the cache: the kernels named `_split`.

All arithmetic is in float32. NaN becomes +inf on loading: either makes the row NaN.
"""

import math
from functools import cache

import torch
import triton
import triton.language as tl

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import gumbel
from decoupled_st.kernels.rows import blocks, shared, source_of

ONE_PASS = 16384
"""The longest row held on chip."""
_LOG2E = tl.constexpr(1 / math.log(2))


@cache
def tiling(categories: int) -> tuple[int, int, int]:
    """Rows and columns of a program's tile, and its warps."""
    block = max(4, triton.next_power_of_2(categories))
    if block > ONE_PASS:
        return 1, 8192, 16
    # The fastest of those measured (benchmarks/estimators.py tune).
    return max(1, 1024 // block), block, 4 if block < 512 else min(16, max(2, block // 512))


def forward(logits, seed, noise, mask, tau, tau_value):
    """One-hots of contiguous rows [.., K]."""
    z = torch.empty_like(logits)
    _launch((_forward, _forward_split), (z, logits, seed, noise), mask, (tau,), (tau_value,), source_of(seed, noise))
    return z


def backward(grad, logits, seed, noise, mask, tau, tau_value, scale, scale_value):
    """The gradient of softmax((l + noise) / tau); without noise that of softmax(l / tau)."""
    out = torch.empty_like(logits)
    tensors, values = (out, grad, logits, seed, noise), (tau_value, scale_value)
    _launch((_backward, _backward_split), tensors, mask, (tau,), values, source_of(seed, noise), scale)
    return out


def backward_second_order(grad, logits, z, mask, tau_f, f_value, tau_b, b_value, scale_value):
    """ReinMax's gradient, given what was drawn."""
    out = torch.empty_like(logits)
    _launch((_backward_second_order,), (out, grad, logits, z), mask, (tau_f, tau_b), (f_value, b_value, scale_value))
    return out


def _launch(kernels, tensors, mask, taus, floats, *others):
    """Launch the first of one or two kernels where rows fit on chip, else the second. `others` are where noise comes
    from, if the kernel takes any, and further tensors."""
    source, scale = others[:1], others[1:]
    K = tensors[0].shape[-1]
    rows, (height, block, warps) = tensors[0].numel() // K, tiling(K)
    integers = (rows, shared(rows, mask), *(shared(rows, tau) for tau in taus))
    mask = None if mask is None else mask.view(torch.uint8)
    kernel, constants = kernels[0 if block >= K else 1], (*source, K, height, block)
    launch(kernel, blocks(rows, height), (*tensors, mask, *taus, *scale), floats, integers, constants, warps)


@triton.jit
def _is_allowed(mask, row, col, inside, shared, K: tl.constexpr):
    """True for elements that lie inside the row and are not masked."""
    allowed = inside if mask is None else inside & (tl.load(mask + row // shared * K + col, inside, other=0) != 0)
    return allowed


@triton.jit
def _load(logits, row, col, allowed, K: tl.constexpr, LAST: tl.constexpr):
    """The logits; -inf where not allowed, +inf for NaN. LAST: they will not be read again."""
    if LAST:
        l = tl.load(logits + row * K + col, allowed, other=-float("inf"), eviction_policy="evict_first")
    else:
        l = tl.load(logits + row * K + col, allowed, other=-float("inf"))
    return _plain(l.to(tl.float32))


@triton.jit
def _plain(x):
    return tl.where(x == x, x, float("inf"))


@triton.jit
def _centre(top):
    """What to subtract from a row: its largest where that is finite."""
    return tl.where((top > -float("inf")) & (top < float("inf")), top, 0.0)


@triton.jit
def _number(pointer, value, at):
    x = value if pointer is None else tl.load(pointer + at).to(tl.float32)
    return x


@triton.jit
def _tau(tau, tau_value, row, rows, shared):
    x = tau_value if tau is None else tl.load(tau + row // shared, row < rows, other=1.0).to(tl.float32)
    return x


@triton.jit
def _noise(
    seed, noise, row, start, inside, NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    if NOISE == 1:
        x = gumbel(seed, row, start // 4 + tl.arange(0, BLOCK // 4)[None, :], ROWS, BLOCK // 4)
    else:
        x = tl.load(noise + row * K + start + tl.arange(0, BLOCK)[None, :], inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _store_choice(z, row, col, inside, top, index, K: tl.constexpr):
    one_hot = tl.where((col == index) & (top > -float("inf")), 1.0, 0.0)
    value = tl.where(top < float("inf"), one_hot, float("nan"))
    tl.store(z + row * K + col, value.to(z.dtype.element_ty), inside)


@triton.jit
def _forward(
    z, logits, seed, noise, mask, tau, tau_value, rows, mask_shared, tau_shared,
    NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < K)
    scores = _load(logits, row, col, _is_allowed(mask, row, col, inside, mask_shared, K), K, False)
    if NOISE > 0:
        drawn = _noise(seed, noise, row, 0, inside, NOISE, K, ROWS, BLOCK)
        centred = scores - _centre(tl.max(scores, 1)[:, None])
        scores = _plain(centred + _tau(tau, tau_value, row, rows, tau_shared) * drawn)
    top = tl.max(scores, 1)[:, None]
    index = tl.min(tl.where(scores == top, col, BLOCK), 1)[:, None]
    _store_choice(z, row, col, inside, top, index, K)


@triton.jit
def _backward(
    out, grad, logits, seed, noise, mask, tau, scale, tau_value, scale_value, rows, mask_shared, tau_shared,
    NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < K)
    g = tl.load(grad + row * K + col, inside, other=0.0).to(tl.float32)
    allowed = _is_allowed(mask, row, col, inside, mask_shared, K)
    x = _load(logits, row, col, allowed, K, False)
    top = tl.max(x, 1)[:, None]
    x = x - _centre(top)
    if NOISE > 0:
        x = _plain(x + _noise(seed, noise, row, 0, inside, NOISE, K, ROWS, BLOCK))
        top = tl.max(x, 1)[:, None]
        x = x - _centre(top)
    t = _tau(tau, tau_value, row, rows, tau_shared)
    e = tl.exp2(x * (_LOG2E / t))
    total = tl.sum(e, 1)[:, None]
    # Relative to the gradient of the largest: g - mean is all but 0 for it where it has all but all the probability.
    first = tl.min(tl.where(x == 0, col, BLOCK), 1)[:, None]
    g = g - tl.sum(tl.where(col == first, g, 0.0), 1)[:, None]
    mean = tl.sum(e * g, 1)[:, None] / total
    y = e * (g - mean) * (_number(scale, scale_value, 0) / (t * total))
    _store_gradient(out, row, col, inside, allowed, top, y, K)


@triton.jit
def _store_gradient(out, row, col, inside, allowed, top, y, K: tl.constexpr):
    # A row with +inf has NaN for its mean, and so in every element.
    y = tl.where(allowed & (top > -float("inf")), y, 0.0)
    tl.store(out + row * K + col, y.to(out.dtype.element_ty), inside)


@triton.jit
def _backward_second_order(
    out, grad, logits, z, mask, tau_f, tau_b, tau_f_value, tau_b_value, scale,
    rows, mask_shared, f_shared, b_shared,
    K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < K)
    g = tl.load(grad + row * K + col, inside, other=0.0).to(tl.float32)
    allowed = _is_allowed(mask, row, col, inside, mask_shared, K)
    x = _load(logits, row, col, allowed, K, False)
    top = tl.max(x, 1)[:, None]
    x = x - _centre(top)
    t_f = _tau(tau_f, tau_f_value, row, rows, f_shared)
    t_b = _tau(tau_b, tau_b_value, row, rows, b_shared)
    e_f = tl.exp2(x * (_LOG2E / t_f))
    e_b = tl.exp2(x * (_LOG2E / t_b))
    p_f = e_f / tl.sum(e_f, 1)[:, None]
    drawn = tl.load(z + row * K + col, inside, other=0.0).to(tl.float32)
    m = 0.5 * (drawn + e_b / tl.sum(e_b, 1)[:, None])
    # Relative to the gradient of the largest, as in `_backward`, and why.
    first = tl.min(tl.where(x == 0, col, BLOCK), 1)[:, None]
    g = g - tl.sum(tl.where(col == first, g, 0.0), 1)[:, None]
    y = 2 * m * (g - tl.sum(m * g, 1)[:, None]) - 0.5 * p_f * (g - tl.sum(p_f * g, 1)[:, None])
    _store_gradient(out, row, col, inside, allowed, top, y * (scale / t_f), K)


@triton.jit
def _row_top(logits, mask, row, mask_shared, K: tl.constexpr, BLOCK: tl.constexpr):
    largest = tl.full([1, BLOCK], -float("inf"), tl.float32)
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        allowed = _is_allowed(mask, row, col, col < K, mask_shared, K)
        largest = tl.maximum(largest, _load(logits, row, col, allowed, K, False))
    return tl.max(largest, 1)[:, None]


@triton.jit
def _forward_split(
    z, logits, seed, noise, mask, tau, tau_value, rows, mask_shared, tau_shared,
    NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) + tl.zeros([1, 1], tl.int64)
    # Each lane keeps its best score relative to the largest logit so far: centred, and the row is read once.
    centre = tl.full([1, BLOCK], -float("inf"), tl.float32)
    best = tl.full([1, BLOCK], -float("inf"), tl.float32)
    where = tl.zeros([1, BLOCK], tl.int32)
    t = _tau(tau, tau_value, row, rows, tau_shared)
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = col < K
        scores = _load(logits, row, col, _is_allowed(mask, row, col, inside, mask_shared, K), K, False)
        if NOISE > 0:
            higher = tl.maximum(centre, scores)
            best = best + (centre - _centre(higher))
            drawn = _noise(seed, noise, row, start, inside, NOISE, K, 1, BLOCK)
            scores = _plain(scores - _centre(higher) + t * drawn)
            centre = higher
        where = tl.where(scores > best, col, where)
        best = tl.maximum(best, scores)
    if NOISE > 0:
        best = _plain(best + (_centre(centre) - _centre(tl.max(centre, 1)[:, None])))
    top = tl.max(best, 1)[:, None]
    index = tl.min(tl.where(best == top, where, K), 1)[:, None]
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        _store_choice(z, row, col, col < K, top, index, K)


@triton.jit
def _surrogate_scores(
    logits, seed, noise, row, start, centre, allowed, inside,
    NOISE: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    x = _load(logits, row, start + tl.arange(0, BLOCK)[None, :], allowed, K, LAST)
    if NOISE > 0:
        x = _plain(x - centre + _noise(seed, noise, row, start, inside, NOISE, K, 1, BLOCK))
    return x


@triton.jit
def _backward_split(
    out, grad, logits, seed, noise, mask, tau, scale, tau_value, scale_value, rows, mask_shared, tau_shared,
    NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) + tl.zeros([1, 1], tl.int64)
    centre = 0.0
    if NOISE > 0:
        centre = _centre(_row_top(logits, mask, row, mask_shared, K, BLOCK))
    t = _tau(tau, tau_value, row, rows, tau_shared)
    rate = _LOG2E / t
    # Each lane keeps the largest score so far and its gradient, and its sums relative to both.
    largest = tl.full([1, BLOCK], -float("inf"), tl.float32)
    origin = tl.zeros([1, BLOCK], tl.float32)
    total = tl.zeros([1, BLOCK], tl.float32)
    dot = tl.zeros([1, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = col < K
        g = tl.load(grad + row * K + col, inside, other=0.0).to(tl.float32)
        allowed = _is_allowed(mask, row, col, inside, mask_shared, K)
        x = _surrogate_scores(logits, seed, noise, row, start, centre, allowed, inside, NOISE, K, BLOCK, False)
        higher = tl.maximum(largest, x)
        base = _centre(higher)
        fade = tl.exp2((largest - base) * rate)
        e = tl.exp2((x - base) * rate)
        moved = tl.where(x > largest, g, origin)
        dot = (dot + total * (origin - moved)) * fade + e * (g - moved)
        total = total * fade + e
        largest, origin = higher, moved
    top = tl.max(largest, 1)[:, None]
    weight = tl.exp2((largest - _centre(top)) * rate)
    total_all = tl.sum(total * weight, 1)[:, None]
    first = tl.min(tl.where(largest == top, tl.arange(0, BLOCK)[None, :], BLOCK), 1)[:, None]
    g_top = tl.sum(tl.where(tl.arange(0, BLOCK)[None, :] == first, origin, 0.0), 1)[:, None]
    mean = tl.sum((dot + total * (origin - g_top)) * weight, 1)[:, None] / total_all
    factor = _number(scale, scale_value, 0) / (t * total_all)
    for before in range(0, K, BLOCK):
        start = (K - 1) // BLOCK * BLOCK - before  # backwards: what was read last is in the cache still
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = col < K
        g = tl.load(grad + row * K + col, inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        allowed = _is_allowed(mask, row, col, inside, mask_shared, K)
        x = _surrogate_scores(logits, seed, noise, row, start, centre, allowed, inside, NOISE, K, BLOCK, True)
        y = tl.exp2((x - _centre(top)) * rate) * (g - g_top - mean) * factor
        _store_gradient(out, row, col, inside, allowed, top, y, K)
