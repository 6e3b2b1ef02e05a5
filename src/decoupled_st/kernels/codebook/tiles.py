"""What the kernels of codebooks share: how large their tiles are, and what a tile is made of."""

import math
import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.noise import gumbel
from decoupled_st.kernels.rows import as_stored

GROUP = 128
_LOG2E = tl.constexpr(1 / math.log(2))
_LN2 = tl.constexpr(math.log(2))
# Triton's interpreter would multiply the bits of bfloat16 as integers.
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


def pointers(scores: Any) -> tuple[Tensor | None, ...]:
    """What every kernel makes scores of, from those of `decoupled_st.codebook.scores`: x, codes, row_scale, code_scale,
    bias."""
    return as_stored(scores.x), as_stored(scores.codes), scores.row_scale, scores.code_scale, scores.bias


# Rows and codes of a tile, warps and stages, for rows of at most 128, 256, 512 and 1,024 bytes: of those that were
# tried on an H200 the fastest, at 64 and 256 features.
_ON_TENSOR_CORES = {
    "search": ((128, GROUP, 4, 4), (128, GROUP, 4, 3), (128, GROUP, 8, 2), (32, GROUP, 8, 1)),
    "forward": ((64, GROUP, 4, 5), (64, GROUP, 4, 3), (128, GROUP, 8, 2), (32, GROUP, 8, 1)),
    "to_x": ((64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 2), (32, 32, 8, 2)),
    "to_codes": ((64, 128, 4, 4), (64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 8, 2)),
}
# Noise for every score is made in registers and turned through shared memory, which leaves less for the rest.
_WITH_NOISE = {
    "forward": ((64, GROUP, 4, 4), (64, GROUP, 4, 3), (64, GROUP, 8, 2), (32, GROUP, 8, 1)),
    "to_x": ((64, 64, 4, 4), (128, 64, 8, 3), (64, 64, 8, 2), (32, 32, 8, 2)),
    "to_codes": ((64, 128, 4, 3), (64, 64, 4, 2), (64, 64, 8, 2), (32, 32, 8, 2)),
}
# Products of float32 as such keep three parts of their operands on chip.
_IN_FLOAT32 = {
    "search": ((128, GROUP, 8, 2), (128, GROUP, 8, 2), (32, GROUP, 8, 2), (16, GROUP, 8, 1)),
    "forward": ((128, GROUP, 8, 2), (128, GROUP, 8, 2), (32, GROUP, 8, 2), (16, GROUP, 8, 1)),
    "to_x": ((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 8, 1), (16, 16, 8, 1)),
    "to_codes": ((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 8, 1), (16, 16, 8, 1)),
}


def tiling(kernel: str, row_bytes: int, float32: bool, noisy: bool = False) -> tuple[int, int, int, int]:
    """Rows and codes of a tile, warps and stages, as Hopper's registers and 227 KiB of shared memory hold them.
    `noisy`: every score has a noise of its own."""
    size = sum(row_bytes > limit for limit in (128, 256, 512))
    return (_IN_FLOAT32 if float32 else _WITH_NOISE if noisy else _ON_TENSOR_CORES)[kernel][size]


def shape_of(scores: Any, kernel: str, *, noisy: bool = False, wide: bool = False) -> dict[str, Any]:
    """What a kernel is compiled for: features, metric, precision, tile, and whether every tile is whole. `wide`: its
    operands are as wide as float32."""
    (N, H, D), K, x = scores.x.shape, scores.codes.shape[1], scores.x
    exact, width = precision(x), width_of(D)
    row_bytes = width * x.element_size() * (2 if wide else 1)
    rows, codes, warps, stages = tiling(kernel, row_bytes, exact == "tf32x3", noisy)
    return {
        "HEADS": H,
        "D": D,
        "L2": scores.metric == "l2",
        "PRECISION": exact,
        "WIDTH": width,
        "ROWS": rows,
        "CODES": codes,
        "WHOLE_ROWS": N % rows == 0 and width == D,
        "WHOLE_CODES": K % codes == 0 and width == D,
        "num_warps": warps,
        "num_stages": stages,
    }


def parts_of(width: int) -> int:
    """Into how many parts the features of a gradient are cut, one program each: two sums of more would not fit into a
    program's registers."""
    return 2 if width > 128 else 1


def width_of(features: int) -> int:
    """The features of a tile: a power of 2 that tensor cores take."""
    return max(16, triton.next_power_of_2(features))


def precision(x: Tensor) -> str:
    """How products are taken: on tensor cores as they are, as always in half precision, or, of float32 as such, as
    three products of TF32, which err as float32 does."""
    if x.dtype != torch.float32:
        return "tf32"
    matmul = torch.backends.cuda.matmul
    # From torch 2.9 on; once it is set, the older name may not be read.
    setting = getattr(matmul, "fp32_precision", None)
    allowed = matmul.allow_tf32 if setting is None else setting == "tf32"
    return "tf32" if x.is_cuda and allowed else "tf32x3"


@triton.jit
def vectors_of(pointer, number, inside, D: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr):
    """Rows of a matrix, [n, WIDTH], with zeros beyond D and for rows that do not exist; WHOLE: all of them do."""
    feature = tl.arange(0, WIDTH)
    at = pointer + number.to(tl.int64)[:, None] * D + feature[None, :]
    return tl.load(at) if WHOLE else tl.load(at, inside[:, None] & (feature[None, :] < D), other=0.0)


@triton.jit
def rows_from(
    start,
    head,
    x,
    N,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A block of rows of one head: their numbers among all rows and heads, which of them exist, and their vectors."""
    number = start + tl.arange(0, ROWS)
    valid = number < N
    row = number.to(tl.int64) * HEADS + head
    return row, valid, vectors_of(x, row, valid, D, WIDTH, WHOLE)


@triton.jit
def optional(pointer, at, inside, other):
    value = other if pointer is None else tl.load(pointer + at, inside, other=other)
    return value


@triton.jit
def dot(a, b, sum, PRECISION: tl.constexpr):
    """sum + a b, in float32."""
    if _INTERPRETED:
        sum = tl.dot(a.to(tl.float32), b.to(tl.float32), sum)
    else:
        sum = tl.dot(a, b, sum, input_precision=PRECISION)
    return sum


@triton.jit
def gradient_dot(a, b, sum, WIDE: tl.constexpr, PRECISION: tl.constexpr):
    """sum + a b, where a is of the softmax's gradient."""
    return dot(a, b.to(tl.float32), sum, "tf32") if WIDE else dot(a.to(b.dtype), b, sum, PRECISION)


@triton.jit
def exponential(s, unit, peak, rate, PRECISION: tl.constexpr):
    """2^((s unit - peak) rate). For products that were rounded anyway, one instruction makes the exponent and one the
    power; for float32 as such the difference is taken first, and the power is as exact as torch's."""
    return _exact_power((s - peak) * rate) if PRECISION == "tf32x3" else tl.exp2(s * (rate * unit) - peak * rate)


@triton.jit
def unit_of(scale, seed, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """What the scores of `scores_of` are still to be multiplied by, [ROWS]: the rows' own scale, but where noise or
    exactness want it inside."""
    unit = tl.zeros([ROWS], tl.float32)
    return unit + (1.0 if seed is not None or PRECISION == "tf32x3" else scale)


@triton.jit
def _exact_power(l):
    """2^l to the last digit or two, where the hardware's own is right to 22 bits."""
    l = tl.where(l < -160.0, -160.0, l)  # a NaN stays one
    whole = tl.floor(l + 0.5)
    f = l - whole
    p = 1.540353039e-4 + f * 1.525273380e-5
    p = 1.333355815e-3 + f * p
    p = 9.618129108e-3 + f * p
    p = 5.550410866e-2 + f * p
    p = 2.402265070e-1 + f * p
    p = 6.931471806e-1 + f * p
    return (1.0 + f * p) * tl.exp2(whole)


@triton.jit
def scores_of(
    x,
    codes,
    row_scale,
    code_scale,
    bias,
    seed,
    row,
    first,
    head,
    K,
    L2: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """The scores [rows, codes] of loaded rows, and of loaded codes from the first on, but for `unit_of`; `row_scale` is
    loaded. -inf beyond K."""
    ROWS: tl.constexpr = x.shape[0]
    CODES: tl.constexpr = codes.shape[0]
    s = dot(x, tl.trans(codes), tl.zeros([ROWS, CODES], tl.float32), PRECISION)
    code = first + tl.arange(0, CODES)
    inside = code < K
    if L2:
        s = 2 * s
    if code_scale is not None:
        s = s * tl.load(code_scale + head * K + code, inside, other=0.0)[None, :]
        if seed is not None or PRECISION == "tf32x3":
            s = s * row_scale[:, None]
    if bias is not None:
        s = s + tl.load(bias + head * K + code, inside, other=0.0)[None, :]
    if seed is not None:
        s = s + gumbel(seed, row[:, None], first // 4 + tl.arange(0, CODES // 4)[None, :], ROWS, CODES // 4)
    if not WHOLE:
        s = tl.where(inside[None, :], s, -float("inf"))
    return s


@triton.jit
def relative(g, tile, l, of_entropy, of_mean, reference, best, code, head, K, PRECISION: tl.constexpr):
    """The gradient of p less that of the top code, where it is exactly 0: that of q, or of entropies and the mean."""
    if of_mean is None:
        u = dot(g, tl.trans(tile), tl.zeros([g.shape[0], tile.shape[0]], tl.float32), PRECISION) - reference[:, None]
    else:
        u = tl.load(of_mean + head * K + code, code < K, other=0.0)[None, :] - reference[:, None]
        u = tl.where(l > -float("inf"), u - of_entropy[:, None] * l, 0.0)
    return tl.where(code[None, :] == best[:, None], 0.0, u)
