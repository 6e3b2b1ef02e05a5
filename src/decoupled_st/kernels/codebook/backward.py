"""The gradient of a codebook's choice, fused: tiles of the scores are made again from rows and codes.

    to x        one program per block of rows: sum p u e, sum p e and sum p u, which give the gradient of x in one walk
    to codes    one program per block of codes walks over the rows; then over those rows that chose one of its codes

No atomics, so the same numbers every time. In float16 the softmax's gradient would underflow: its products take TF32,
which holds every float16 exactly.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.codebook.tiles import (
    _LN2,
    _LOG2E,
    dot,
    exponential,
    gradient_dot,
    optional,
    parts_of,
    pointers,
    relative,
    rows_from,
    scores_of,
    shape_of,
    unit_of,
    vectors_of,
)
from decoupled_st.kernels.rows import as_stored, blocks


def pull_back(
    scores: Any,
    top: Tensor,
    peak: Tensor,
    rest: Tensor,
    tau: Tensor,
    *,
    grad: Tensor | None = None,
    index: Tensor | None = None,
    scale: Tensor | None = None,
    seed: Tensor | None = None,
    of_entropy: Tensor | None = None,
    of_mean: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of the codes and of the temperature.

    Incoming are either the gradient of q, with the index and the scale, and with a seed where the scores are perturbed;
    or those of the entropies and of the mean.
    """
    (N, H, D), K, x = scores.x.shape, scores.codes.shape[1], scores.x
    if grad is not None:
        at_top = (grad.float() * scores.codes[torch.arange(H, device=x.device), top].float()).sum(-1)
        grad = as_stored(grad.to(x.dtype))
    else:
        of_entropy = torch.zeros_like(peak) if of_entropy is None else as_stored(of_entropy)
        of_mean = peak.new_zeros(H, K) if of_mean is None else as_stored(of_mean / N)
        at_top = of_mean.gather(1, top.T).T
    scale = torch.ones_like(peak) if scale is None else as_stored(scale)
    state = [as_stored(t) for t in (at_top, top.int(), peak, 1 + rest, tau)]
    lin, mean = (torch.empty(*shape, dtype=torch.float32, device=x.device) for shape in ((N, H, D), (N, H)))
    to_codes = torch.empty(H, K, D, dtype=x.dtype, device=x.device)
    given = of_entropy, of_mean, grad, *pointers(scores), *state, seed, N, K
    wide = x.dtype == torch.float16
    with torch.cuda.device_of(x):
        shape = shape_of(scores, "to_x", noisy=seed is not None, wide=wide)
        parts = parts_of(shape["WIDTH"])
        _to_x[(blocks(N, shape["ROWS"]), H, parts)](lin, mean, *given, WIDE=wide, PARTS=parts, **shape)
        shape = shape_of(scores, "to_codes", noisy=seed is not None, wide=wide)
        order, bounds = (None, None) if index is None else _chosen_by_block(index, K, shape["CODES"])
        index = None if index is None else as_stored(index.int())
        _to_codes[(blocks(K, shape["CODES"]), H)](
            to_codes, mean, scale, index, order, bounds, *given, WIDE=wide, **shape
        )
    # The scores are linear in the rows as they enter the product: sum ds s = rows . lin. Head by head, so that how many
    # heads there are does not change the rounding.
    every = slice(None)
    rows = scores.rows(every)
    to_tau = -torch.stack([(rows[:, h] * lin[:, h]).sum(-1) for h in range(H)], 1) / tau
    return scores.to_x(every, lin * scale.unsqueeze(-1)).to(x.dtype), to_codes, to_tau


def _chosen_by_block(index: Tensor, K: int, width: int) -> tuple[Tensor, Tensor]:
    """The rows [H, N] in the order of their codes, and where in it each block of `width` codes begins [H, blocks + 1].
    Rows without a code come first, and in no block."""
    numbers, order = torch.sort(index.T.contiguous(), dim=-1, stable=True)
    edges = torch.arange(blocks(K, width) + 1, device=index.device) * width
    bounds = torch.searchsorted(numbers, edges.expand(len(numbers), -1).contiguous())
    return order.int(), bounds.int()


@triton.jit
def _to_x(
    out, mean, of_entropy, of_mean, grad, x, codes, row_scale, code_scale, bias, at_top, top, peak, total, tau, seed,
    N, K, HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """sum_k ds_k c_k of the codes c as they enter the product, with ds = p (u - sum p u) / tau: in one walk, as
    (sum p u c - (sum p u) (sum p c)) / tau. u is relative to the top code, whose own is exactly 0."""
    head = tl.program_id(1).to(tl.int64)
    row, valid, vectors = rows_from(tl.program_id(0) * ROWS, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
    g = vectors if grad is None else vectors_of(grad, row, valid, D, WIDTH, WHOLE_ROWS)
    scale, entropy = optional(row_scale, row, valid, 1.0), optional(of_entropy, row, valid, 0.0)
    highest, reference = tl.load(peak + row, valid, other=0.0), tl.load(at_top + row, valid, other=0.0)
    best, t = tl.load(top + row, valid, other=-1), tl.load(tau + row, valid, other=1.0)
    rate = _LOG2E / t
    unit = unit_of(scale, seed, PRECISION, ROWS)
    SHARE: tl.constexpr = WIDTH // PARTS
    feature = tl.program_id(2) * SHARE + tl.arange(0, SHARE)
    weighed = tl.zeros([ROWS, SHARE], tl.float32)
    soft = tl.zeros([ROWS, SHARE], tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    for first in range(0, K, CODES):
        code = first + tl.arange(0, CODES)
        tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
        s = scores_of(vectors, tile, scale, code_scale, bias, seed, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        p = exponential(s, unit[:, None], highest[:, None], rate[:, None], PRECISION)
        l = (s * unit[:, None] - highest[:, None]) * (rate * _LN2)[:, None] if of_mean is not None else s
        pu = p * relative(g, tile, l, entropy, of_mean, reference, best, code, head, K, PRECISION)
        sums += tl.sum(pu, 1)
        if code_scale is not None:
            lengths = tl.load(code_scale + head * K + code, code < K, other=0.0)[None, :]
            p, pu = p * lengths, pu * lengths
        part = tile
        if PARTS > 1:
            at = codes + head * K * D + code.to(tl.int64)[:, None] * D + feature[None, :]
            part = tl.load(at) if WHOLE_CODES else tl.load(at, (code < K)[:, None] & (feature[None, :] < D), other=0.0)
        weighed = gradient_dot(pu, part, weighed, WIDE, PRECISION)
        soft = gradient_dot(p, part, soft, WIDE, PRECISION)
    z = tl.load(total + row, valid, other=1.0)
    average = sums / z
    lin = (weighed - average[:, None] * soft) / (z * t)[:, None]
    tl.store(out + row[:, None] * D + feature[None, :], lin, valid[:, None] & (feature[None, :] < D))
    if tl.program_id(2) == 0:
        tl.store(mean + row, average, valid)


@triton.jit
def _to_codes(
    out, mean, scale, index, order, bounds, of_entropy, of_mean, grad, x, codes, row_scale, code_scale, bias, at_top,
    top, peak, total, tau, seed, N, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * CODES
    code = first + tl.arange(0, CODES)
    tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
    lin = tl.zeros([CODES, WIDTH], tl.float32)
    sums = tl.zeros([CODES], tl.float32)
    for start in range(0, N, ROWS):
        row, valid, vectors = rows_from(start, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
        g = vectors if grad is None else vectors_of(grad, row, valid, D, WIDTH, WHOLE_ROWS)
        length, entropy = optional(row_scale, row, valid, 1.0), optional(of_entropy, row, valid, 0.0)
        highest, reference = tl.load(peak + row, valid, other=0.0), tl.load(at_top + row, valid, other=0.0)
        best, t = tl.load(top + row, valid, other=-1), tl.load(tau + row, valid, other=1.0)
        s = scores_of(vectors, tile, length, code_scale, bias, seed, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        rate = _LOG2E / t
        unit = unit_of(length, seed, PRECISION, ROWS)
        weight = tl.load(scale + row, valid, other=0.0) / (t * tl.load(total + row, valid, other=1.0))
        p = exponential(s, unit[:, None], highest[:, None], rate[:, None], PRECISION)
        l = (s * unit[:, None] - highest[:, None]) * (rate * _LN2)[:, None] if of_mean is not None else s
        u = relative(g, tile, l, entropy, of_mean, reference, best, code, head, K, PRECISION)
        if row_scale is not None:
            weight = weight * length
        ds = p * (u - tl.load(mean + row, valid, other=0.0)[:, None]) * weight[:, None]
        if L2:
            sums += tl.sum(ds, 0)
        lin = gradient_dot(tl.trans(ds), vectors, lin, WIDE, PRECISION)
    if L2:
        lin = 2 * lin - 2 * tile.to(tl.float32) * sums[:, None]
    if code_scale is not None:
        length = tl.load(code_scale + head * K + code, code < K, other=0.0)[:, None]
        unit = tile.to(tl.float32) * length
        lin = length * (lin - unit * tl.sum(unit * lin, 1)[:, None])
    if grad is not None:
        places = bounds + head * (tl.num_programs(0) + 1) + tl.program_id(0)
        end = tl.load(places + 1)
        for start in range(tl.load(places), end, ROWS):
            place = start + tl.arange(0, ROWS)
            number = tl.load(order + head * N + place, place < end, other=0)
            row = number.to(tl.int64) * HEADS + head
            hit = tl.load(index + row, place < end, other=-1)[None, :] == code[:, None]
            g = vectors_of(grad, row, place < end, D, WIDTH, False)
            lin = dot(tl.where(hit, 1.0, 0.0).to(g.dtype), g, lin, "ieee")
    feature = tl.arange(0, WIDTH)
    at = out + head * K * D + code.to(tl.int64)[:, None] * D + feature[None, :]
    tl.store(at, lin.to(out.dtype.element_ty), (code < K)[:, None] & (feature[None, :] < D))
