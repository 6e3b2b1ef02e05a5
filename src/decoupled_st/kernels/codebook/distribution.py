"""Entropies and the mean of a codebook's distribution, fused; their gradient takes the kernels of the choice.

of rows     one program per block of rows: sum p l and the sum of all p but the top one, with l = (s - peak) / tau
of codes    one program per block of codes: the mean of p over the rows
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.codebook.choice import choose
from decoupled_st.kernels.codebook.tiles import (
    _LN2,
    _LOG2E,
    Scores,
    exponential,
    optional,
    pointers,
    rows_from,
    scores_of,
    shape_of,
    unit_of,
    vectors_of,
)
from decoupled_st.kernels.rows import as_stored, blocks


def moments(scores: Scores, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
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
