"""A codebook's choice and its gradient, fused: tiles of the scores live on chip and are made again where needed.

    forward     one program per block of rows walks over the codes: argmax, or the best group of 128 codes with its
                noise, and the sum of exp((s - peak) / tau_b)
    inside      one program per row draws a code inside the row's group
    to x        one program per block of rows: sum p u e, sum p e and sum p u, which give the gradient of x in one walk
    to codes    one program per block of codes walks over the rows; then over the index, for the chosen rows' own part

No atomics, so the same numbers every time. Products of bfloat16 and float16 are summed in float32; float32 takes TF32
where torch allows it. In float16 the softmax's gradient would underflow: its products take TF32, which holds every
float16 exactly.
"""

import math
import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels.noise import gumbel
from decoupled_st.kernels.rows import as_stored, blocks

GROUP = 128
_LOG2E = tl.constexpr(1 / math.log(2))
_LN2 = tl.constexpr(math.log(2))
# Triton's interpreter would multiply the bits of bfloat16 as integers.
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
# Groups are numbered beyond every quarter of 2^31 codes, so that no code shares their noise.
_GROUPS_FROM = tl.constexpr(1 << 29)


@dataclass
class Scoring:
    """What scales and shifts the products of x [N, H, D] and codes [H, K, D] into scores."""

    metric: str
    row_scale: Tensor | None
    """[N, H]"""
    code_scale: Tensor | None
    """[H, K]"""
    bias: Tensor | None
    """[H, K]; -inf for a code that may not be chosen."""

    def pointers(self) -> tuple[Tensor | None, ...]:
        return self.row_scale, self.code_scale, self.bias


# Rows and codes of a tile, warps and stages, for rows of at most 128, 256, 512 and 1,024 bytes.
_ON_TENSOR_CORES = {
    "forward": ((128, GROUP, 8, 3), (128, GROUP, 8, 3), (64, GROUP, 8, 2), (32, GROUP, 8, 1)),
    "to_x": ((128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2), (32, 32, 8, 2)),
    "to_codes": ((64, 128, 8, 2), (64, 64, 8, 2), (64, 64, 8, 2), (32, 32, 8, 2)),
}
# Products of float32 as such keep their operands in registers, which larger tiles would spill.
_IN_FLOAT32 = {
    "forward": ((64, GROUP, 8, 2), (64, GROUP, 8, 2), (32, GROUP, 8, 2), (16, GROUP, 8, 1)),
    "to_x": ((64, 32, 8, 1), (64, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1)),
    "to_codes": ((32, 64, 8, 1), (32, 64, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1)),
}


def tiling(kernel: str, row_bytes: int, float32: bool) -> tuple[int, int, int, int]:
    """Rows and codes of a tile, warps and stages, as Hopper's registers and 227 KiB of shared memory hold them."""
    size = sum(row_bytes > limit for limit in (128, 256, 512))
    return (_IN_FLOAT32 if float32 else _ON_TENSOR_CORES)[kernel][size]


def choose(
    x: Tensor, codes: Tensor, scoring: Scoring, tau_f: Tensor | None, tau_b: Tensor, seed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Index, top code, its score, and the sum of exp((s - peak) / tau_b) over the other codes: each [N, H].

    With `tau_f` the index is drawn; with a seed alone, the scores are perturbed.
    """
    N, H, D = x.shape
    top, group = (torch.empty(N, H, dtype=torch.int32, device=x.device) for _ in range(2))
    peak, total = (torch.empty(N, H, dtype=torch.float32, device=x.device) for _ in range(2))
    x, codes, tau_b = as_stored(x), as_stored(codes), as_stored(tau_b)
    tau_f = None if tau_f is None else as_stored(tau_f)
    height, width, warps, stages = tiling("forward", _row_bytes(x), _in_float32(x))
    with torch.cuda.device_of(x):
        _forward[(blocks(N, height), H)](
            top, peak, total, group, x, codes, *scoring.pointers(), tau_f, tau_b, seed, N,
            HEADS=H, K=codes.shape[1], D=D, L2=scoring.metric == "l2", PRECISION=_precision(x),
            ROWS=height, CODES=width, WIDTH=_width(D), num_warps=warps, num_stages=stages,
        )  # fmt: skip
    index = top
    if tau_f is not None:
        index = torch.empty_like(top)
        with torch.cuda.device_of(x):
            _inside[(N * H,)](
                index, group, x, codes, *scoring.pointers(), tau_f, seed, HEADS=H, K=codes.shape[1], D=D,
                L2=scoring.metric == "l2", SIZE=GROUP, WIDTH=_width(D), num_warps=4,
            )  # fmt: skip
    known = total.isfinite() & (peak > -math.inf)
    return index.long().where(known, -1), top.long(), peak, total - 1


def pull_back(
    grad: Tensor, at_top: Tensor, index: Tensor, top: Tensor, peak: Tensor, rest: Tensor, x: Tensor, codes: Tensor,
    scoring: Scoring, tau_b: Tensor, scale: Tensor, seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient [N, H, D] of the rows as they enter the product, in float32 and without `scale`; that of the codes.

    `at_top`: the incoming gradient times the top code. With a seed, the scores are perturbed.
    """
    state = [as_stored(t) for t in (at_top, top.int(), peak, 1 + rest, tau_b)]
    incoming = as_stored(scale), as_stored(index.int()), None, None, as_stored(grad)
    return launch_pull_back(incoming, x, codes, scoring, state, seed)


def launch_pull_back(
    incoming: tuple[Tensor | None, ...], x: Tensor, codes: Tensor, scoring: Scoring, state: list[Tensor],
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`incoming`: scale, index, the gradients of entropies, of the mean and of q, as the kernels take them."""
    N, H, D = x.shape
    to_x, to_codes = torch.empty(N, H, D, dtype=torch.float32, device=x.device), torch.empty_like(codes)
    mean = torch.empty(N, H, dtype=torch.float32, device=x.device)
    x, codes = as_stored(x), as_stored(codes)
    constants = {
        "HEADS": H, "K": codes.shape[1], "D": D, "L2": scoring.metric == "l2", "PRECISION": _precision(x),
        "WIDE": x.dtype == torch.float16, "WIDTH": _width(D),
    }  # fmt: skip
    row_bytes = _row_bytes(x) * (2 if constants["WIDE"] else 1)
    with torch.cuda.device_of(x):
        height, width, warps, stages = tiling("to_x", row_bytes, _in_float32(x))
        _to_x[(blocks(N, height), H)](
            to_x, mean, *incoming[2:], x, codes, *scoring.pointers(), *state, seed, N, **constants,
            ROWS=height, CODES=width, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        height, width, warps, stages = tiling("to_codes", row_bytes, _in_float32(x))
        _to_codes[(blocks(codes.shape[1], width), H)](
            to_codes, mean, *incoming, x, codes, *scoring.pointers(), *state, seed, N, **constants,
            ROWS=height, CODES=width, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return to_x, to_codes


def _width(features: int) -> int:
    """The features of a tile: a power of 2 that tensor cores take."""
    return max(16, triton.next_power_of_2(features))


def _row_bytes(x: Tensor) -> int:
    return _width(x.shape[-1]) * x.element_size()


def _precision(x: Tensor) -> str:
    """How products of float32 are taken; half precision has one way only."""
    return "tf32" if x.is_cuda and torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _in_float32(x: Tensor) -> bool:
    return x.dtype == torch.float32 and _precision(x) == "ieee"


@triton.jit
def _vectors(pointer, number, inside, stride, D: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of a matrix, [n, WIDTH], with zeros beyond D and for those that are not there."""
    feature = tl.arange(0, WIDTH)
    at = pointer + number.to(tl.int64)[:, None] * stride + feature[None, :]
    return tl.load(at, inside[:, None] & (feature[None, :] < D), other=0.0)


@triton.jit
def _optional(pointer, at, inside, other):
    value = other if pointer is None else tl.load(pointer + at, inside, other=other)
    return value


@triton.jit
def _dot(a, b, sum, PRECISION: tl.constexpr):
    """sum + a b, in float32."""
    if _INTERPRETED:
        sum = tl.dot(a.to(tl.float32), b.to(tl.float32), sum)
    else:
        sum = tl.dot(a, b, sum, input_precision=PRECISION)
    return sum


@triton.jit
def _scores(
    x, codes, row_scale, code_scale, bias, seed, row, code, first, head,
    K: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr,
):  # fmt: skip
    """The scores [ROWS, CODES] of loaded rows and codes; `row_scale` is loaded too. -inf beyond K."""
    s = _dot(x, tl.trans(codes), tl.zeros([ROWS, CODES], tl.float32), PRECISION)
    inside = code < K
    if L2:
        s = 2 * s
    if code_scale is not None:
        s = s * row_scale[:, None] * tl.load(code_scale + head * K + code, inside, other=0.0)[None, :]
    if bias is not None:
        s = s + tl.load(bias + head * K + code, inside, other=0.0)[None, :]
    if seed is not None:
        s = s + gumbel(seed, row[:, None], first // 4 + tl.arange(0, CODES // 4)[None, :], ROWS, CODES // 4)
    return tl.where(inside[None, :], s, -float("inf"))


@triton.jit
def _relative(
    g, tile, l, of_entropy, of_mean, reference, best, code, head,
    K: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr,
):  # fmt: skip
    """The gradient of p less that of the top code, where it is exactly 0: that of q, or of entropies and the mean."""
    if of_mean is None:
        u = _dot(g, tl.trans(tile), tl.zeros([ROWS, CODES], tl.float32), PRECISION) - reference[:, None]
    else:
        u = tl.load(of_mean + head * K + code, code < K, other=0.0)[None, :] - reference[:, None]
        u = tl.where(l > -float("inf"), u - of_entropy[:, None] * l, 0.0)
    return tl.where(code[None, :] == best[:, None], 0.0, u)


@triton.jit
def _gradient_dot(a, b, sum, WIDE: tl.constexpr, PRECISION: tl.constexpr):
    """sum + a b, where a is of the softmax's gradient."""
    return _dot(a, b.to(tl.float32), sum, "tf32") if WIDE else _dot(a.to(b.dtype), b, sum, PRECISION)


@triton.jit
def _forward(
    top_out, peak_out, total_out, group_out, x, codes, row_scale, code_scale, bias, tau_f, tau_b, seed, N,
    HEADS: tl.constexpr, K: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, CODES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = number < N
    row = number.to(tl.int64) * HEADS + head
    vectors = _vectors(x, row, valid, D, D, WIDTH)
    scale = _optional(row_scale, row, valid, 1.0)
    rate = _LOG2E / tl.load(tau_b + row, valid, other=1.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    top = tl.zeros([ROWS], tl.int32)
    best = tl.full([ROWS], -float("inf"), tl.float32)
    more = tl.zeros([ROWS], tl.float32)
    group = tl.zeros([ROWS], tl.int32)
    drawn_at = _optional(tau_f, row, valid, 1.0)
    draw_rate = _LOG2E / tl.where(drawn_at > 0, drawn_at, 1.0)
    for first in range(0, K, CODES):
        code = first + tl.arange(0, CODES)
        tile = _vectors(codes + head * K * D, code, code < K, D, D, WIDTH)
        s = _scores(
            vectors, tile, scale, code_scale, bias, seed if tau_f is None else None, row, code, first, head,
            K, L2, PRECISION, ROWS, CODES,
        )  # fmt: skip
        high = tl.max(s, 1)
        at = first + tl.min(tl.where(s == high[:, None], tl.arange(0, CODES)[None, :], CODES), 1)
        top = tl.where(high > peak, at, top)
        higher = tl.maximum(peak, high)
        centre = tl.where(higher > -float("inf"), higher, 0.0)
        kept = tl.exp2((peak - centre) * rate)
        total = total * kept + tl.sum(tl.exp2((s - centre[:, None]) * rate[:, None]), 1)
        peak = higher
        if tau_f is not None:
            # A tile is a group. Its peak and what noise and log-sum-exp add are kept apart: beside a large peak the
            # noise would be rounded away.
            centre = tl.where(high > -float("inf"), high, 0.0)
            sums = tl.sum(tl.exp2((s - centre[:, None]) * draw_rate[:, None]), 1)
            quad = _GROUPS_FROM + first // CODES + tl.zeros([1, 1], tl.int32)
            noises = gumbel(seed, row[:, None], quad, ROWS, 1)
            noise = tl.sum(tl.where(tl.arange(0, 4)[None, :] == 0, noises, 0.0), 1)
            added = tl.where(high > -float("inf"), drawn_at * (_LN2 * tl.log2(sums) + noise), 0.0)
            better = (high - best) > (more - added)
            group = tl.where(better, first // CODES, group)
            best = tl.where(better, high, best)
            more = tl.where(better, added, more)
    tl.store(top_out + row, top, valid)
    tl.store(peak_out + row, peak, valid)
    tl.store(total_out + row, total, valid)
    tl.store(group_out + row, group, valid)


@triton.jit
def _inside(
    index, group, x, codes, row_scale, code_scale, bias, tau_f, seed,
    HEADS: tl.constexpr, K: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The code of one row, drawn inside its group."""
    row = tl.program_id(0).to(tl.int64)
    head = row % HEADS
    first = tl.load(group + row) * SIZE
    code = first + tl.arange(0, SIZE)
    inside = code < K
    tile = _vectors(codes + head * K * D, code, inside, D, D, WIDTH).to(tl.float32)
    feature = tl.arange(0, WIDTH)
    vector = tl.load(x + row * D + feature, feature < D, other=0.0).to(tl.float32)
    s = tl.sum(tile * vector[None, :], 1)
    if L2:
        s = 2 * s
    if code_scale is not None:
        s = s * tl.load(row_scale + row) * tl.load(code_scale + head * K + code, inside, other=0.0)
    if bias is not None:
        s = s + tl.load(bias + head * K + code, inside, other=0.0)
    s = tl.where(inside, s, -float("inf"))
    noise = gumbel(seed, row + tl.zeros([1, 1], tl.int64), first // 4 + tl.arange(0, SIZE // 4)[None, :], 1, SIZE // 4)
    s = s - tl.max(s, 0) + tl.load(tau_f + row) * tl.reshape(noise, (SIZE,))
    # A row whose scores are NaN has no best; any code does, since the caller gives it none.
    best = tl.min(tl.where(s == tl.max(s, 0), tl.arange(0, SIZE), SIZE - 1), 0)
    tl.store(index + row, tl.minimum(first + best, K - 1))


@triton.jit
def _to_x(
    out, mean, of_entropy, of_mean, grad, x, codes, row_scale, code_scale, bias, at_top, top, peak, total, tau, seed, N,
    HEADS: tl.constexpr, K: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """sum_k ds_k c_k of the codes c as they enter the product, with ds = p (u - sum p u) / tau: in one walk, as
    (sum p u c - (sum p u) (sum p c)) / tau. u is relative to the top code, whose own is exactly 0."""
    head = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = number < N
    row = number.to(tl.int64) * HEADS + head
    vectors = _vectors(x, row, valid, D, D, WIDTH)
    g = vectors if grad is None else _vectors(grad, row, valid, D, D, WIDTH)
    scale, entropy = _optional(row_scale, row, valid, 1.0), _optional(of_entropy, row, valid, 0.0)
    highest, reference = tl.load(peak + row, valid, other=0.0), tl.load(at_top + row, valid, other=0.0)
    best, t = tl.load(top + row, valid, other=-1), tl.load(tau + row, valid, other=1.0)
    rate = _LOG2E / t
    weighed = tl.zeros([ROWS, WIDTH], tl.float32)
    soft = tl.zeros([ROWS, WIDTH], tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    for first in range(0, K, CODES):
        code = first + tl.arange(0, CODES)
        tile = _vectors(codes + head * K * D, code, code < K, D, D, WIDTH)
        s = _scores(vectors, tile, scale, code_scale, bias, seed, row, code, first, head, K, L2, PRECISION, ROWS, CODES)
        l = (s - highest[:, None]) * rate[:, None]
        p = tl.exp2(l)
        pu = p * _relative(g, tile, l * _LN2, entropy, of_mean, reference, best, code, head, K, PRECISION, ROWS, CODES)
        sums += tl.sum(pu, 1)
        if code_scale is not None:
            lengths = tl.load(code_scale + head * K + code, code < K, other=0.0)[None, :]
            p, pu = p * lengths, pu * lengths
        weighed = _gradient_dot(pu, tile, weighed, WIDE, PRECISION)
        soft = _gradient_dot(p, tile, soft, WIDE, PRECISION)
    z = tl.load(total + row, valid, other=1.0)
    average = sums / z
    lin = (weighed - average[:, None] * soft) / (z * t)[:, None]
    feature = tl.arange(0, WIDTH)
    tl.store(out + row[:, None] * D + feature[None, :], lin, valid[:, None] & (feature[None, :] < D))
    tl.store(mean + row, average, valid)


@triton.jit
def _to_codes(
    out, mean, scale, index, of_entropy, of_mean, grad, x, codes, row_scale, code_scale, bias, at_top, top, peak, total,
    tau, seed, N,
    HEADS: tl.constexpr, K: tl.constexpr, D: tl.constexpr, L2: tl.constexpr, PRECISION: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr, CODES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * CODES
    code = first + tl.arange(0, CODES)
    tile = _vectors(codes + head * K * D, code, code < K, D, D, WIDTH)
    lin = tl.zeros([CODES, WIDTH], tl.float32)
    sums = tl.zeros([CODES], tl.float32)
    for start in range(0, N, ROWS):
        number = start + tl.arange(0, ROWS)
        valid = number < N
        row = number.to(tl.int64) * HEADS + head
        vectors = _vectors(x, row, valid, D, D, WIDTH)
        g = vectors if grad is None else _vectors(grad, row, valid, D, D, WIDTH)
        length, entropy = _optional(row_scale, row, valid, 1.0), _optional(of_entropy, row, valid, 0.0)
        highest, reference = tl.load(peak + row, valid, other=0.0), tl.load(at_top + row, valid, other=0.0)
        best, t = tl.load(top + row, valid, other=-1), tl.load(tau + row, valid, other=1.0)
        s = _scores(
            vectors, tile, length, code_scale, bias, seed, row, code, first, head, K, L2, PRECISION, ROWS, CODES
        )
        rate = _LOG2E / t
        weight = tl.load(scale + row, valid, other=0.0) / (t * tl.load(total + row, valid, other=1.0))
        l = (s - highest[:, None]) * rate[:, None]
        p = tl.exp2(l)
        u = _relative(g, tile, l * _LN2, entropy, of_mean, reference, best, code, head, K, PRECISION, ROWS, CODES)
        ds = p * (u - tl.load(mean + row, valid, other=0.0)[:, None]) * weight[:, None]
        sums += tl.sum(ds, 0)
        if row_scale is not None:
            ds = ds * length[:, None]
        lin = _gradient_dot(tl.trans(ds), vectors, lin, WIDE, PRECISION)
    if L2:
        lin = 2 * lin - 2 * tile.to(tl.float32) * sums[:, None]
    if code_scale is not None:
        length = tl.load(code_scale + head * K + code, code < K, other=0.0)[:, None]
        unit = tile.to(tl.float32) * length
        lin = length * (lin - unit * tl.sum(unit * lin, 1)[:, None])
    if grad is not None:
        for start in range(0, N, ROWS):
            number = start + tl.arange(0, ROWS)
            valid = number < N
            row = number.to(tl.int64) * HEADS + head
            hit = tl.load(index + row, valid, other=-1)[None, :] == code[:, None]
            if tl.max(tl.max(hit.to(tl.int32), 1), 0) > 0:
                g = _vectors(grad, row, valid, D, D, WIDTH)
                lin = _dot(tl.where(hit, 1.0, 0.0).to(g.dtype), g, lin, "ieee")
    feature = tl.arange(0, WIDTH)
    at = out + head * K * D + code.to(tl.int64)[:, None] * D + feature[None, :]
    tl.store(at, lin.to(out.dtype.element_ty), (code < K)[:, None] & (feature[None, :] < D))
