"""ReinMax, fused: forward as in `categorical` and `binary`, backward from the logits and what was drawn.

Of the draw each row keeps its index, not its one-hot; a binary neuron keeps its output, which the caller has anyway.
Rows that do not fit on chip, and what is traced or compiled, are left to the plain version.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from decoupled_st.kernels import binary, can_take_gradient, categorical, is_watched
from decoupled_st.kernels.binary import _start
from decoupled_st.kernels.binary import _tau as binary_tau
from decoupled_st.kernels.categorical_kernels import _centre, _is_allowed, _load, _store_choice, _tau
from decoupled_st.kernels.categorical_kernels import _noise as categorical_noise
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import draw_seed
from decoupled_st.kernels.rows import as_stored, blocks, by_row

_LOG2E = tl.constexpr(1 / math.log(2))


def can_run(categories: int) -> bool:
    """True where there is a kernel for rows of so many categories, called as this call is."""
    return categories <= categorical.ONE_PASS and not is_watched()


def choose_category(
    logits: Tensor,
    tau_f: float | Tensor,
    tau_b: float | Tensor,
    grad_scale: float | Tensor,
    *,
    dim: int,
    mask: Tensor | None,
    generator: torch.Generator | None,
    noise: Tensor | None,
) -> Tensor:
    """One-hot along `dim` with ReinMax's gradient. The caller has checked the arguments."""
    shape = logits.shape
    moved = logits if dim == -1 else logits.movedim(dim, -1)
    seed = draw_seed(logits.device, generator) if noise is None else None
    noise = None if noise is None else as_stored(noise.movedim(dim, -1))
    mask = None if mask is None else by_row(mask, shape, dim, shape[dim])
    taus = [by_row(t, shape, dim, 1) if isinstance(t, Tensor) else t for t in (tau_f, tau_b)]
    z = _Categorical.apply(as_stored(moved), (seed, noise, mask, *taus, grad_scale))
    return z if dim == -1 else z.movedim(-1, dim)


def choose_bit(
    logits: Tensor,
    tau_f: float | Tensor,
    tau_b: float | Tensor,
    grad_scale: float | Tensor,
    *,
    generator: torch.Generator | None,
    noise: Tensor | None,
) -> Tensor:
    """0 or 1 with ReinMax's gradient. The caller has checked the arguments."""
    seed = draw_seed(logits.device, generator) if noise is None else None
    shape = (*logits.shape, 1)
    taus = [by_row(t[..., None], shape, -1, 1) if isinstance(t, Tensor) else t for t in (tau_f, tau_b)]
    noise = None if noise is None else as_stored(noise)
    return _Binary.apply(as_stored(logits), (seed, noise, *taus, grad_scale))


def _number(tau):
    """A temperature as a kernel takes it: rows of a tensor, or a float."""
    return (tau, 0.0) if isinstance(tau, Tensor) else (None, tau)


def _wide(tau, like: Tensor, width: int):
    """A temperature by row as one that broadcasts to `like`, whose rows have this width."""
    if not isinstance(tau, Tensor):
        return tau
    rows = like.numel() // width
    lead = like.shape[:-1] if width > 1 else like.shape
    return tau.repeat_interleave(rows // len(tau), 0).view(*lead, *((1,) if width > 1 else ()))


class _Categorical(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, others):
        seed, noise, mask, tau_f, tau_b, scale = others
        K = logits.shape[-1]
        rows = logits.numel() // K
        z, index = torch.empty_like(logits), torch.empty(rows, dtype=torch.int32, device=logits.device)
        height, block, warps = categorical.tiling(K)
        tensor, value = _number(tau_f)
        tensors = (z, index, logits, seed, noise, _bytes(mask), tensor)
        counts = (rows, _shared(rows, mask), _shared(rows, tensor))
        constants = (1 if noise is None else 2, K, height, block)
        launch(_forward, blocks(rows, height), tensors, (value,), counts, constants, warps)
        ctx.save_for_backward(logits, index, mask, *(t for t in (tau_f, tau_b) if isinstance(t, Tensor)))
        ctx.taus, ctx.scale = [None if isinstance(t, Tensor) else t for t in (tau_f, tau_b)], scale
        return z

    @staticmethod
    def backward(ctx, grad):
        logits, index, mask, *tensors = ctx.saved_tensors
        tau_f, tau_b = (tensors.pop(0) if tau is None else tau for tau in ctx.taus)
        step = _plain_categorical if _must_be_plain(grad) else _run_backward
        return step(grad, logits, index, mask, tau_f, tau_b, ctx.scale), None


class _Binary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, others):
        seed, noise, tau_f, tau_b, scale = others
        z = binary._run_forward(logits, seed, noise, *_number(tau_f))
        ctx.save_for_backward(logits, z, *(t for t in (tau_f, tau_b) if isinstance(t, Tensor)))
        ctx.taus, ctx.scale = [None if isinstance(t, Tensor) else t for t in (tau_f, tau_b)], scale
        return z

    @staticmethod
    def backward(ctx, grad):
        logits, z, *tensors = ctx.saved_tensors
        tau_f, tau_b = (tensors.pop(0) if tau is None else tau for tau in ctx.taus)
        step = _plain_binary if _must_be_plain(grad) else _run_binary_backward
        return step(grad, logits, z.detach(), tau_f, tau_b, ctx.scale), None


def _must_be_plain(grad):
    """True where the gradient is differentiated (create_graph=True), transformed, or traced by compiled autograd."""
    return torch.is_grad_enabled() or is_watched() or not can_take_gradient(grad)


def _bytes(mask):
    return None if mask is None else mask.view(torch.uint8)


def _shared(rows, tensor):
    return 1 if tensor is None else rows // len(tensor)


def _run_backward(grad, logits, index, mask, tau_f, tau_b, scale):
    K = logits.shape[-1]
    rows, out = logits.numel() // K, torch.empty_like(logits)
    height, block, warps = categorical.tiling(K)
    (f, f_value), (b, b_value) = _number(tau_f), _number(tau_b)
    tensors = (out, as_stored(grad), logits, index, _bytes(mask), f, b)
    counts = (rows, _shared(rows, mask), _shared(rows, f), _shared(rows, b))
    numbers = (f_value, b_value, scale)
    launch(_backward, blocks(rows, height), tensors, numbers, counts, (K, height, block), warps)
    return out


def _run_binary_backward(grad, logits, z, tau_f, tau_b, scale):
    n, out = logits.numel(), torch.empty_like(logits)
    (f, f_value), (b, b_value) = _number(tau_f), _number(tau_b)
    tensors = (out, as_stored(grad), logits, z, f, b)
    counts = (n, _shared(n, f), _shared(n, b))
    constants = (n >= 2**31 - binary._BLOCK, binary._BLOCK)
    numbers = (f_value, b_value, scale)
    launch(_backward_binary, blocks(n, binary._BLOCK), tensors, numbers, counts, constants, binary._WARPS)
    return out


def _plain_categorical(grad, logits, index, mask, tau_f, tau_b, scale):
    """What the backward kernel computes, in operations that can be differentiated with respect to the gradient."""
    K, shape = logits.shape[-1], logits.shape
    l = logits.detach().float()
    if mask is not None:
        l = l.masked_fill(~categorical._allowed(mask, logits), -math.inf)
    top, largest = l.max(-1, keepdim=True)
    empty = top == -math.inf
    l = (l - top.masked_fill(empty, 0.0).masked_fill(top == math.inf, math.nan)).masked_fill(empty, 0.0)
    t_f, t_b = _wide(tau_f, logits, K), _wide(tau_b, logits, K)
    p_f, p_b = (l / t_f).softmax(-1), (l / t_b).softmax(-1)
    drawn = torch.nn.functional.one_hot(index.long().view(shape[:-1]), K).to(l.dtype)
    g = grad.float()
    g = g - g.gather(-1, largest)
    m = (drawn + p_b) / 2
    slope = 2 * m * (g - (m * g).sum(-1, keepdim=True)) - 0.5 * p_f * (g - (p_f * g).sum(-1, keepdim=True))
    blocked = empty if mask is None else empty | ~categorical._allowed(mask, logits)
    return (slope * (scale / t_f)).masked_fill(blocked, 0.0).to(logits.dtype)


def _plain_binary(grad, logits, z, tau_f, tau_b, scale):
    l, drawn = logits.detach().float(), z.float()
    t_f, t_b = _wide(tau_f, logits, 1), _wide(tau_b, logits, 1)
    rare_f, rare_b = torch.sigmoid(-l.abs() / t_f), torch.sigmoid(-l.abs() / t_b)
    m = torch.where(drawn == (l > 0), (1 - rare_b / 2) * rare_b, (1 - rare_b * rare_b) / 2)
    return (grad.float() * (m - rare_f * (1 - rare_f) / 2) * (scale / t_f)).to(logits.dtype)


@triton.jit
def _forward(
    z, index, logits, seed, noise, mask, tau, tau_value, rows, mask_shared, tau_shared,
    NOISE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < K)
    l = _load(logits, row, col, _is_allowed(mask, row, col, inside, mask_shared, K), K, False)
    drawn = categorical_noise(seed, noise, row, 0, inside, NOISE, K, ROWS, BLOCK)
    scores = l - _centre(tl.max(l, 1)[:, None]) + _tau(tau, tau_value, row, rows, tau_shared) * drawn
    scores = tl.where(scores == scores, scores, float("inf"))
    top = tl.max(scores, 1)[:, None]
    first = tl.min(tl.where(scores == top, col, BLOCK), 1)[:, None]
    _store_choice(z, row, col, inside, top, first, K)
    tl.store(index + row, first.to(tl.int32), row < rows)


@triton.jit
def _backward(
    out, grad, logits, index, mask, tau_f, tau_b, tau_f_value, tau_b_value, scale,
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
    drawn = tl.load(index + row, row < rows, other=0)
    m = 0.5 * (tl.where(col == drawn, 1.0, 0.0) + e_b / tl.sum(e_b, 1)[:, None])
    # Relative to the gradient of the largest, as in `categorical`, and why.
    first = tl.min(tl.where(x == 0, col, BLOCK), 1)[:, None]
    g = g - tl.sum(tl.where(col == first, g, 0.0), 1)[:, None]
    y = 2 * m * (g - tl.sum(m * g, 1)[:, None]) - 0.5 * p_f * (g - tl.sum(p_f * g, 1)[:, None])
    y = tl.where(allowed & (top > -float("inf")), y * (scale / t_f), 0.0)
    tl.store(out + row * K + col, y.to(out.dtype.element_ty), inside)


@triton.jit
def _backward_binary(
    out, grad, logits, z, tau_f, tau_b, tau_f_value, tau_b_value, scale, n, f_shared, b_shared,
    WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = _start(WIDE, BLOCK) + tl.arange(0, BLOCK)[None, :]
    inside = at < n
    g = tl.load(grad + at, inside, other=0.0).to(tl.float32)
    l = tl.load(logits + at, inside, other=0.0).to(tl.float32)
    drawn = tl.load(z + at, inside, other=0.0).to(tl.float32)
    t_f = binary_tau(tau_f, tau_f_value, at, inside, f_shared)
    t_b = binary_tau(tau_b, tau_b_value, at, inside, b_shared)
    e_f = tl.exp(-tl.abs(l) / t_f)
    e_b = tl.exp(-tl.abs(l) / t_b)
    rare_f, rare_b = e_f / (1 + e_f), e_b / (1 + e_b)
    likelier = (drawn > 0.5) == (l > 0)
    m = tl.where(likelier, (1 - rare_b * 0.5) * rare_b, (1 - rare_b * rare_b) * 0.5)
    y = g * (m - rare_f * (1 - rare_f) * 0.5) * (scale / t_f)
    tl.store(out + at, y.to(out.dtype.element_ty), inside)
