"""A codebook's choice, fused: tiles of the scores live on chip, and are made again for the gradient.

    forward     one program per block of rows walks over the codes: the best group of 128 codes, as it is or with its
                noise, and the sum of exp((s - peak) / tau_b)
    inside      one program per row takes the best code inside the row's group, or draws one

No atomics, so the same numbers every time. Products of bfloat16 and float16 are summed in float32; float32 takes TF32
where torch allows it.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.codebook import tiles
from decoupled_st.kernels.codebook.tiles import (
    _LN2,
    _LOG2E,
    Scoring,
    exponential,
    optional,
    scores_of,
    unit_of,
    vectors_of,
)
from decoupled_st.kernels.noise import first_gumbel, gumbel
from decoupled_st.kernels.rows import as_stored, blocks

# Groups are numbered beyond every quarter of 2^31 codes, so that no code shares their noise.
_GROUPS_FROM = tl.constexpr(1 << 29)


def choose(
    x: Tensor, codes: Tensor, scoring: Scoring, tau_f: Tensor | None, tau_b: Tensor, seed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Index, top code, its score, and the sum of exp((s - peak) / tau_b) over the other codes: each [N, H].

    With `tau_f` the index is drawn; with a seed alone, the scores are perturbed.
    """
    N, H, _ = x.shape
    K = codes.shape[1]
    groups = [torch.empty(N, H, dtype=torch.int32, device=x.device) for _ in range(1 if tau_f is None else 2)]
    peak, total = (torch.empty(N, H, dtype=torch.float32, device=x.device) for _ in range(2))
    x, codes, tau_b = as_stored(x), as_stored(codes), as_stored(tau_b)
    tau_f = None if tau_f is None else as_stored(tau_f)
    perturbed = seed is not None and tau_f is None
    tile = tiles.tiling("forward", tiles.row_bytes_of(x), tiles.in_float32(x), perturbed)
    with torch.cuda.device_of(x):
        results, given = (groups[0], peak, total, groups[-1]), (x, codes, *scoring.pointers(), tau_f, tau_b, seed, N, K)
        _forward[(blocks(N, tile[0]), H)](*results, *given, **tiles.shape_of(x, codes, scoring.metric, tile))
    options = x, codes, scoring, tile[1]
    top = _best_inside(groups[0], None, seed if perturbed else None, *options)
    index = top if tau_f is None else _best_inside(groups[1], tau_f, seed, *options)
    known = total.isfinite() & (peak > -math.inf)
    if tau_f is not None:
        known &= tau_f.reshape(known.shape).isfinite()
    return index.long().where(known, -1), top.long(), peak, total - 1


def _best_inside(
    group: Tensor, tau_f: Tensor | None, seed: Tensor | None, x: Tensor, codes: Tensor, scoring: Scoring, size: int
) -> Tensor:
    """The best code [N, H] of each row's group of `size` codes, drawn with a temperature."""
    (N, H, D), width = x.shape, tiles.width_of(x.shape[-1])
    index = torch.empty_like(group)
    with torch.cuda.device_of(x):
        given, constants = (x, codes, *scoring.pointers(), tau_f, seed, codes.shape[1]), (H, D, scoring.metric == "l2")
        _inside[(N * H,)](index, group, *given, *constants, size, width, num_warps=8 if width > 128 else 4)
    return index


@triton.jit
def _forward(
    top_out, peak_out, total_out, drawn_out, x, codes, row_scale, code_scale, bias, tau_f, tau_b, seed, N, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = number < N
    row = number.to(tl.int64) * HEADS + head
    vectors = vectors_of(x, row, valid, D, WIDTH, WHOLE_ROWS)
    scale = optional(row_scale, row, valid, 1.0)
    key = seed if tau_f is None else None  # of a noise of every score's own
    unit = unit_of(scale, key, PRECISION, ROWS)
    rate = _LOG2E / tl.load(tau_b + row, valid, other=1.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    top = tl.zeros([ROWS], tl.int32)
    best = tl.full([ROWS], -float("inf"), tl.float32)
    more = tl.zeros([ROWS], tl.float32)
    drawn = tl.zeros([ROWS], tl.int32)
    drawn_at = optional(tau_f, row, valid, 1.0)
    draw_rate = _LOG2E / tl.where(drawn_at > 0, drawn_at, 1.0)
    for first in range(0, K, CODES):
        code = first + tl.arange(0, CODES)
        tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
        s = scores_of(vectors, tile, scale, code_scale, bias, key, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        high = tl.max(s, 1) * unit
        top = tl.where(high > peak, first // CODES, top)
        higher = tl.maximum(peak, high)
        centre = tl.where(higher > -float("inf"), higher, 0.0)
        kept = tl.exp2((peak - centre) * rate)
        total = total * kept + tl.sum(exponential(s, unit[:, None], centre[:, None], rate[:, None], PRECISION), 1)
        peak = higher
        if tau_f is not None:
            # A tile is a group. Its peak and what noise and log-sum-exp add are kept apart: next to a large peak
            # the noise would be rounded away.
            centre = tl.where(high > -float("inf"), high, 0.0)
            sums = tl.sum(exponential(s, unit[:, None], centre[:, None], draw_rate[:, None], PRECISION), 1)
            noise = first_gumbel(seed, row, _GROUPS_FROM + first // CODES)
            added = tl.where(high > -float("inf"), drawn_at * (_LN2 * tl.log2(sums) + noise), 0.0)
            better = (high - best) > (more - added)
            drawn = tl.where(better, first // CODES, drawn)
            best = tl.where(better, high, best)
            more = tl.where(better, added, more)
    tl.store(top_out + row, top, valid)
    tl.store(peak_out + row, peak, valid)
    tl.store(total_out + row, total, valid)
    if tau_f is not None:
        tl.store(drawn_out + row, drawn, valid)


@triton.jit
def _inside(
    index, group, x, codes, row_scale, code_scale, bias, tau_f, seed, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The code of one row inside its group: drawn where there is a temperature, else the best, noise included where
    there is a seed."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.load(group + row) * SIZE
    s = scores_of_row(x, codes, row_scale, code_scale, bias, row, first, K, HEADS, D, L2, SIZE, WIDTH)
    if seed is not None:
        quads = first // 4 + tl.arange(0, SIZE // 4)[None, :]
        noises = gumbel(seed, row + tl.zeros([1, 1], tl.int64), quads, 1, SIZE // 4)
        noise = tl.reshape(noises, (SIZE,))
        s = s + noise if tau_f is None else s - tl.max(s, 0) + tl.load(tau_f + row) * noise
    # A row whose scores are NaN has no best; any code does, since the caller gives it none.
    best = tl.min(tl.where(s == tl.max(s, 0), tl.arange(0, SIZE), SIZE - 1), 0)
    tl.store(index + row, tl.minimum(first + best, K - 1))


@triton.jit
def scores_of_row(
    x, codes, row_scale, code_scale, bias, row, first, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The scores [SIZE] of one row against so many codes; -inf beyond K."""
    head = row % HEADS
    code = first + tl.arange(0, SIZE)
    inside = code < K
    tile = vectors_of(codes + head * K * D, code, inside, D, WIDTH, False).to(tl.float32)
    feature = tl.arange(0, WIDTH)
    vector = tl.load(x + row * D + feature, feature < D, other=0.0).to(tl.float32)
    s = tl.sum(tile * vector[None, :], 1)
    if L2:
        s = 2 * s
    if code_scale is not None:
        s = s * tl.load(row_scale + row) * tl.load(code_scale + head * K + code, inside, other=0.0)
    if bias is not None:
        s = s + tl.load(bias + head * K + code, inside, other=0.0)
    return tl.where(inside, s, -float("inf"))
