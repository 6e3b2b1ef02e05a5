"""The best code of each row, fused: only scores and their maximum.

    search    one program per block of rows and share of the codes: the largest score, and which tile of codes has it
    settle    one program per row: the first share with the largest score, and the first best code of its tile

The lowest number among equal scores wins, whatever the tiles and shares. No atomics.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.codebook import tiles
from decoupled_st.kernels.codebook.choice import scores_of_row
from decoupled_st.kernels.codebook.tiles import Scoring, optional, scores_of, unit_of, vectors_of
from decoupled_st.kernels.rows import as_stored, blocks

_PROGRAMS = 1024
"""How many programs search: enough for every GPU to be busy, and the last ones to be few."""


def nearest(x: Tensor, codes: Tensor, scoring: Scoring) -> Tensor:
    """The number [N, H] of the best code of each row of x [N, H, D] among codes [H, K, D]; -1 where there is none."""
    (N, H, D), K = x.shape, codes.shape[1]
    x, codes = as_stored(x), as_stored(codes)
    tile = tiles.tiling("search", tiles.row_bytes_of(x), tiles.in_float32(x))
    shares = min(max(1, _PROGRAMS // (blocks(N, tile[0]) * H)), blocks(K, tile[1]), 64)
    each = blocks(blocks(K, tile[1]), shares)  # tiles of a share
    peak = torch.empty(shares, N, H, dtype=torch.float32, device=x.device)
    group = torch.empty(shares, N, H, dtype=torch.int32, device=x.device)
    index = torch.empty(N, H, dtype=torch.int64, device=x.device)
    shape = tiles.shape_of(x, codes, scoring.metric, tile)
    with torch.cuda.device_of(x):
        given = peak, group, x, codes, *scoring.pointers()
        _search[(blocks(N, tile[0]), H, shares)](*given, N, K, each * tile[1], **shape)
        constants = H, D, shape["L2"], tile[1], shape["WIDTH"], triton.next_power_of_2(shares)
        _settle[(N * H,)](index, *given, N * H, K, shares, *constants, num_warps=4)
    return index


@triton.jit
def _search(
    peak_out, group_out, x, codes, row_scale, code_scale, bias, N, K, share,
    HEADS: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WHOLE_ROWS: tl.constexpr, WHOLE_CODES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = number < N
    row = number.to(tl.int64) * HEADS + head
    vectors = vectors_of(x, row, valid, D, WIDTH, WHOLE_ROWS)
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
