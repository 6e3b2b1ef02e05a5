"""A codebook's choice and distribution, fused: tiles of the scores live on chip, and are made again for the gradient.

    forward     one program per block of rows walks over the codes: the best group of 128 codes, as it is or with its
                noise, and the sum of exp((s - peak) / tau_b)
    inside      one program per row takes the best code inside the row's group, or draws one

The best code alone needs only scores and their maximum:

    search      one program per block of rows and share of the codes: the largest score, and which tile of codes has it
    settle      one program per row: the first share with the largest score, and the first best code of its tile

Entropies and the mean of the distribution, of which the gradient takes the kernels of the choice:

    of rows     one program per block of rows: sum p l and the sum of all p but the top one, with l = (s - peak) / tau
    of codes    one program per block of codes: the mean of p over the rows

The lowest number among equal scores wins, whatever the tiles and shares. No atomics, so the same numbers every time.
Products of bfloat16 and float16 are summed in float32; float32 takes TF32 where torch allows it.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.codebook.tiles import (
    _LN2,
    _LOG2E,
    exponential,
    optional,
    pointers,
    rows_from,
    scores_of,
    shape_of,
    unit_of,
    vectors_of,
    width_of,
)
from decoupled_st.kernels.noise import first_gumbel, gumbel
from decoupled_st.kernels.rows import as_stored, blocks

# Groups are numbered beyond every quarter of 2^31 codes, so that no code shares their noise.
_GROUPS_FROM = tl.constexpr(1 << 29)
_PROGRAMS = 1024
"""How many programs search: enough for every GPU to be busy, and the last ones to be few."""


def choose(
    scores: Any, tau_f: Tensor | None, tau_b: Tensor, seed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Index, top code, its score, and the sum of exp((s - peak) / tau_b) over the other codes: each [N, H].

    With `tau_f` the index is drawn; with a seed alone, the scores are perturbed.
    """
    (N, H, _), K, device = scores.x.shape, scores.codes.shape[1], scores.x.device
    groups = [torch.empty(N, H, dtype=torch.int32, device=device) for _ in range(1 if tau_f is None else 2)]
    peak, total = (torch.empty(N, H, dtype=torch.float32, device=device) for _ in range(2))
    given, results = pointers(scores), (groups[0], peak, total, groups[-1])
    tau_f, tau_b = None if tau_f is None else as_stored(tau_f), as_stored(tau_b)
    perturbed = seed is not None and tau_f is None
    shape = shape_of(scores, "forward", noisy=perturbed)
    with torch.cuda.device_of(peak):
        _forward[(blocks(N, shape["ROWS"]), H)](*results, *given, tau_f, tau_b, seed, N, K, **shape)
        top = _best_inside(groups[0], scores, given, None, seed if perturbed else None, shape["CODES"])
        index = top if tau_f is None else _best_inside(groups[1], scores, given, tau_f, seed, shape["CODES"])
    known = total.isfinite() & (peak > -math.inf)
    if tau_f is not None:
        known &= tau_f.reshape(known.shape).isfinite()
    return index.long().where(known, -1), top.long(), peak, total - 1


def _best_inside(
    group: Tensor,
    scores: Any,
    given: tuple[Tensor | None, ...],
    tau_f: Tensor | None,
    seed: Tensor | None,
    size: int,
) -> Tensor:
    """The best code [N, H] of each row's group of `size` codes, drawn with a temperature."""
    N, H, D = scores.x.shape
    index, width, K = torch.empty_like(group), width_of(D), scores.codes.shape[1]
    constants = H, D, scores.metric == "l2", size, width
    _inside[(N * H,)](index, group, *given, tau_f, seed, K, *constants, num_warps=8 if width > 128 else 4)
    return index


def nearest(scores: Any) -> Tensor:
    """The number [N, H] of the best code of each row; -1 where there is none."""
    (N, H, D), K, device = scores.x.shape, scores.codes.shape[1], scores.x.device
    shape = shape_of(scores, "search")
    row_blocks, code_blocks = blocks(N, shape["ROWS"]), blocks(K, shape["CODES"])
    shares = min(max(1, _PROGRAMS // (row_blocks * H)), code_blocks, 64)
    each = blocks(code_blocks, shares)  # tiles of a share
    peak = torch.empty(shares, N, H, dtype=torch.float32, device=device)
    group = torch.empty(shares, N, H, dtype=torch.int32, device=device)
    index = torch.empty(N, H, dtype=torch.int64, device=device)
    with torch.cuda.device_of(index):
        given = peak, group, *pointers(scores)
        _search[(row_blocks, H, shares)](*given, N, K, each * shape["CODES"], **shape)
        constants = H, D, shape["L2"], shape["CODES"], shape["WIDTH"], triton.next_power_of_2(shares)
        _settle[(N * H,)](index, *given, N * H, K, shares, *constants, num_warps=4)
    return index


@triton.jit
def _forward(
    top_out, peak_out, total_out, drawn_out, x, codes, row_scale, code_scale, bias, tau_f, tau_b, seed, N, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row, valid, vectors = rows_from(tl.program_id(0) * ROWS, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
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
def _search(
    peak_out, group_out, x, codes, row_scale, code_scale, bias, N, K, share,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row, valid, vectors = rows_from(tl.program_id(0) * ROWS, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
    scale = optional(row_scale, row, valid, 1.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    group = tl.zeros([ROWS], tl.int32)
    begin = tl.program_id(2) * share
    for first in range(begin, tl.minimum(begin + share, K), CODES):
        code = first + tl.arange(0, CODES)
        tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
        s = scores_of(vectors, tile, scale, code_scale, bias, None, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        high = tl.max(s, 1)
        group = tl.where(high > peak, first // CODES, group)  # False for NaN
        peak = tl.where(high > peak, high, peak)
    at = tl.program_id(2).to(tl.int64) * N * HEADS + row
    tl.store(peak_out + at, peak * unit_of(scale, None, PRECISION, ROWS), valid)
    tl.store(group_out + at, group, valid)


@triton.jit
def _settle(
    index, peak, group, x, codes, row_scale, code_scale, bias, rows, K, shares,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    SHARES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    share = tl.arange(0, SHARES)
    peaks = tl.load(peak + share.to(tl.int64) * rows + row, share < shares, other=-float("inf"))
    highest = tl.max(peaks, 0)
    first_share = tl.min(tl.where(peaks == highest, share, SHARES - 1), 0)
    first = tl.load(group + first_share.to(tl.int64) * rows + row) * SIZE
    s = scores_of_row(x, codes, row_scale, code_scale, bias, row, first, K, HEADS, D, L2, SIZE, WIDTH)
    best = tl.min(tl.where(s == tl.max(s, 0), tl.arange(0, SIZE), SIZE - 1), 0)
    known = (highest > -float("inf")) & (highest < float("inf"))
    tl.store(index + row, tl.where(known, tl.minimum(first + best, K - 1).to(tl.int64), -1))


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


def moments(scores: Any, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The entropy [N, H] of each row and the mean [H, K]; then top code, its score, and `rest`, as `choose` returns
    them, but that `rest` has not the rounding of a sum with 1."""
    _, top, peak, _ = choose(scores, None, tau, None)
    N, H, _ = scores.x.shape
    K, device = scores.codes.shape[1], scores.x.device
    rest, weighted = (torch.empty(N, H, dtype=torch.float32, device=device) for _ in range(2))
    mean = torch.empty(H, K, dtype=torch.float32, device=device)
    given = (*pointers(scores), *(as_stored(t) for t in (top.int(), peak, tau)), N, K)
    shape = shape_of(scores, "forward")
    with torch.cuda.device_of(mean):
        _of_rows[(blocks(N, shape["ROWS"]), H)](rest, weighted, *given, **shape)
        _of_codes[(blocks(K, shape["CODES"]), H)](mean, 1 + rest, *given, **shape)
    return torch.log1p(rest) - weighted / (1 + rest), mean, top, peak, rest


@triton.jit
def _of_rows(
    others_out, weighted_out, x, codes, row_scale, code_scale, bias, top, peak, tau, N, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row, valid, vectors = rows_from(tl.program_id(0) * ROWS, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
    length = optional(row_scale, row, valid, 1.0)
    highest, best = tl.load(peak + row, valid, other=0.0), tl.load(top + row, valid, other=-1)
    rate = _LOG2E / tl.load(tau + row, valid, other=1.0)
    unit = unit_of(length, None, PRECISION, ROWS)
    others = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS], tl.float32)
    for first in range(0, K, CODES):
        code = first + tl.arange(0, CODES)
        tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
        s = scores_of(vectors, tile, length, code_scale, bias, None, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        l = (s * unit[:, None] - highest[:, None]) * rate[:, None]
        power = exponential(s, unit[:, None], highest[:, None], rate[:, None], PRECISION)
        p = tl.where(code[None, :] == best[:, None], 0.0, power)
        others += tl.sum(p, 1)
        weighted += tl.sum(tl.where(l > -float("inf"), p * l, 0.0), 1)
    tl.store(others_out + row, others, valid)
    tl.store(weighted_out + row, weighted * _LN2, valid)


@triton.jit
def _of_codes(
    mean, total, x, codes, row_scale, code_scale, bias, top, peak, tau, N, K,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * CODES
    code = first + tl.arange(0, CODES)
    tile = vectors_of(codes + head * K * D, code, code < K, D, WIDTH, WHOLE_CODES)
    sums = tl.zeros([CODES], tl.float32)
    for start in range(0, N, ROWS):
        row, valid, vectors = rows_from(start, head, x, N, HEADS, D, WIDTH, ROWS, WHOLE_ROWS)
        length = optional(row_scale, row, valid, 1.0)
        s = scores_of(vectors, tile, length, code_scale, bias, None, row, first, head, K, L2, PRECISION, WHOLE_CODES)
        rate = _LOG2E / tl.load(tau + row, valid, other=1.0)
        unit = unit_of(length, None, PRECISION, ROWS)
        highest = tl.load(peak + row, valid, other=0.0)
        share = tl.where(valid, 1.0, 0.0) / tl.load(total + row, valid, other=1.0)
        power = exponential(s, unit[:, None], highest[:, None], rate[:, None], PRECISION)
        sums += tl.sum(power * share[:, None], 0)
    tl.store(mean + head * K + code, sums / N, code < K)
