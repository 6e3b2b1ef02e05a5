"""The categorical estimators, fused: forward reads the logits and writes z, backward reads the logits and the incoming
gradient and writes the gradient. Nothing else of the logits' size is kept or moved.

A row of up to 16,384 categories is held on chip, several rows per program where they are short. A longer one is walked
through in blocks, one program per row, and read again from the cache.

All arithmetic is in float32. NaN becomes +inf on loading: either makes the row NaN.
"""

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

from decoupled_st.kernels import can_take_gradient, is_watched
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import draw_seed, gumbel, write_out
from decoupled_st.kernels.rows import as_stored, blocks, by_row, number

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


def choose(
    logits: Tensor,
    tau_f: float | Tensor,
    tau_b: float | Tensor | None,
    grad_scale: float | Tensor,
    *,
    perturbed: bool = False,
    dim: int,
    mask: Tensor | None,
    generator: torch.Generator | None,
    noise: Tensor | None,
) -> Tensor:
    """One-hot along `dim` of argmax(l + tau_f * g), with the gradient of softmax(l / tau_b).

    `grad_scale` is one number. `perturbed`: the surrogate is at l + g; without `tau_b` it is the identity. The caller
    has checked the arguments.
    """
    stored = as_stored(logits if dim == -1 else logits.movedim(dim, -1))
    seed = None
    if isinstance(tau_f, float) and tau_f == 0:
        noise = None
    elif noise is None:
        seed = draw_seed(logits.device, generator)
    else:
        noise = as_stored(noise.movedim(dim, -1))
    if mask is not None:
        mask = by_row(mask, logits.shape, dim, logits.shape[dim])
    numbers = (*number(tau_f, logits, dim), *number(tau_b, logits, dim), *number(grad_scale, logits, dim))
    others = (seed, noise, mask, *numbers, tau_b is None, perturbed)
    if is_watched():
        z = torch.ops.decoupled_st.categorical(stored, *others)
    elif logits.requires_grad and torch.is_grad_enabled():
        z = _apply(unwrap_if_dead(stored), others)
    else:
        z = _run_forward(stored, *others)
    return z if dim == -1 else z.movedim(-1, dim)


def _save(ctx, inputs, output):
    logits, seed, noise, mask, _, _, tau, ctx.tau, scale, ctx.scale, ctx.identity, perturbed = inputs
    ctx.save_for_backward(logits, *((seed, noise) if perturbed else (None, None)), mask, tau, scale)


def _gradient(ctx, grad, backward):
    logits, seed, noise, mask, tau, scale = ctx.saved_tensors
    if ctx.identity or torch.is_grad_enabled() or not can_take_gradient(grad):  # is_grad_enabled: for create_graph=True
        tau, scale = ctx.tau if tau is None else tau, ctx.scale if scale is None else scale
        if ctx.identity:
            result = _identity(grad, logits, mask, scale)
        else:
            result = _differentiable(grad, logits, seed, noise, mask, tau, scale)
    else:
        result = backward(as_stored(grad), logits, seed, noise, mask, tau, ctx.tau, scale, ctx.scale)
    return result


class _Choose(torch.autograd.Function):
    """The operator as called eagerly: the dispatcher would take longer than a small kernel. What has no gradient comes
    as one argument, since each takes its time."""

    @staticmethod
    def forward(ctx, logits, others):
        inputs = (logits, *others)
        _save(ctx, inputs, None)
        return _run_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        # Compiled autograd traces this.
        backward = torch.ops.decoupled_st.categorical_backward if is_watched() else _run_backward
        return _gradient(ctx, grad, backward), None


# `Function.apply` looks for transforms of torch.func first, as `can_run_fused` has done.
_apply = super(torch.autograd.Function, _Choose).apply


def _allowed(mask: Tensor, like: Tensor) -> Tensor:
    rows = like.numel() // like.shape[-1]
    return mask.repeat_interleave(rows // len(mask), 0).view(like.shape)


def _identity(grad: Tensor, logits: Tensor, mask: Tensor | None, scale: float | Tensor) -> Tensor:
    """Identity STE's gradient: nothing to fuse with."""
    blocked = logits.isinf() if mask is None else logits.isinf() | ~_allowed(mask, logits)
    return (grad * scale).to(grad.dtype).masked_fill(blocked, 0.0)


def _differentiable(grad, logits, seed, noise, mask, tau, scale):
    """What the backward kernel computes, in operations that can be differentiated once more."""
    l, shape = logits.float(), logits.shape
    allowed = torch.ones_like(logits, dtype=torch.bool) if mask is None else _allowed(mask, logits)
    l = l.masked_fill(~allowed, -math.inf)
    l = l - l.detach().amax(-1, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
    if seed is not None:
        noise = write_out(seed, l.numel() // shape[-1], shape[-1], gumbel=True).view(shape)
    if noise is not None:
        l = l + noise.float()
    empty = l.detach().amax(-1, keepdim=True) == -math.inf
    if isinstance(tau, Tensor):
        tau = tau.repeat_interleave(l.numel() // shape[-1] // len(tau), 0).view(*shape[:-1], 1)
    p = torch.softmax(l.masked_fill(empty, 0.0) / tau, -1)
    g = grad.float()
    g = g - g.gather(-1, l.detach().argmax(-1, keepdim=True))  # as `estimators.rows.softmax` does, and why
    result = p * (g - (p * g).sum(-1, keepdim=True)) * (scale / tau)
    return result.masked_fill(empty | ~allowed, 0.0).to(logits.dtype)


# Operators of our own make the kernels opaque to torch.compile, which can add nothing to them: it would only trace the
# launch, and could not do that where a temperature is a changing float. They also run under Triton's interpreter.
_library = torch.library.Library("decoupled_st", "FRAGMENT")
_INPUTS = "Tensor logits, Tensor? seed, Tensor? noise, Tensor? mask, "
_library.define(
    f"categorical({_INPUTS} Tensor? tau_f, float tau_f_value, Tensor? tau_b, float tau_b_value, "
    "Tensor? scale, float scale_value, bool identity, bool perturbed) -> Tensor"
)
_library.define(
    f"categorical_backward(Tensor grad, {_INPUTS} Tensor? tau, float tau_value, Tensor? scale, float scale_value) "
    "-> Tensor"
)
torch.library.register_fake("decoupled_st::categorical", lambda logits, *_: torch.empty_like(logits))
torch.library.register_fake("decoupled_st::categorical_backward", lambda grad, logits, *_: torch.empty_like(logits))
torch.library.register_autograd(
    "decoupled_st::categorical",
    lambda ctx, grad: (_gradient(ctx, grad, torch.ops.decoupled_st.categorical_backward), *(None,) * 11),
    setup_context=_save,
)


def _launch(one_pass, split, tensors, numbers, logits, seed, noise, mask, tau, *scale):
    K = logits.shape[-1]
    rows = logits.numel() // K
    height, block, warps = tiling(K)
    counts = (rows, 1 if mask is None else rows // len(mask), 1 if tau is None else rows // len(tau))
    source = 0 if seed is None and noise is None else 1 if noise is None else 2
    kernel = one_pass if block >= K else split
    tensors = (*tensors, logits, seed, noise, None if mask is None else mask.view(torch.uint8), tau, *scale)
    launch(kernel, blocks(rows, height), tensors, numbers, counts, (source, K, height, block), warps)


def _run_forward(logits, seed, noise, mask, tau, tau_value, *_):
    z = torch.empty_like(logits)
    _launch(_forward, _forward_split, (z,), (tau_value,), logits, seed, noise, mask, tau)
    return z


def _run_backward(grad, logits, seed, noise, mask, tau, tau_value, scale, scale_value):
    out = torch.empty_like(logits)
    numbers = (tau_value, scale_value)
    _launch(_backward, _backward_split, (out, grad), numbers, logits, seed, noise, mask, tau, scale)
    return out


_library.impl("categorical", _run_forward, "CompositeExplicitAutograd")
_library.impl("categorical_backward", _run_backward, "CompositeExplicitAutograd")


@triton.jit
def _is_allowed(mask, row, col, inside, shared, K: tl.constexpr):
    """Which elements are there and allowed."""
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
    # Each lane keeps its best score relative to the largest logit it has met: centred, and the row is read once.
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
    # Each lane keeps the largest score it has met and its gradient, and its sums relative to both.
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
