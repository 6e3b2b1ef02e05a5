"""The kernels of binary choices, and their launches; see `choice`. One element at a time, in float32."""

import torch
import triton
import triton.language as tl

from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import logistic
from decoupled_st.kernels.rows import blocks, shared, source_of

_BLOCK, _WARPS = 2048, 4


def forward(logits, seed, noise, mask, tau, tau_value):
    """0 or 1 of contiguous log-odds, which have no mask."""
    z = torch.empty_like(logits)
    _launch(_forward, (z, logits, seed, noise), (tau,), (tau_value,), source_of(seed, noise))
    return z


def backward(grad, logits, seed, noise, mask, tau, tau_value, scale, scale_value):
    """The gradient of sigmoid((l + noise) / tau); without noise that of sigmoid(l / tau)."""
    out = torch.empty_like(logits)
    tensors, values = (out, grad, logits, seed, noise), (tau_value, scale_value)
    _launch(_backward, tensors, (tau,), values, source_of(seed, noise), scale)
    return out


def backward_second_order(grad, logits, z, mask, tau_f, f_value, tau_b, b_value, scale_value):
    """ReinMax's gradient, given what was drawn."""
    out = torch.empty_like(logits)
    _launch(_backward_second_order, (out, grad, logits, z), (tau_f, tau_b), (f_value, b_value, scale_value))
    return out


def _launch(kernel, tensors, taus, floats, *others):
    source, scale = others[:1], others[1:]
    n = tensors[0].numel()
    integers = (n, *(shared(n, tau) for tau in taus))
    constants = (*source, n >= 2**31 - _BLOCK, _BLOCK)
    launch(kernel, blocks(n, _BLOCK), (*tensors, *taus, *scale), floats, integers, constants, _WARPS)


@triton.jit
def _start(WIDE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0)
    if WIDE:  # 64-bit indices are slow to divide
        first = first.to(tl.int64)
    return first * BLOCK


@triton.jit
def _noise(seed, noise, start, at, inside, NOISE: tl.constexpr, BLOCK: tl.constexpr):
    if NOISE == 1:
        row = tl.zeros([1, 1], tl.int32)
        x = logistic(seed, row, start // 4 + tl.arange(0, BLOCK // 4)[None, :], 1, BLOCK // 4)
    else:
        x = tl.load(noise + at, inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _tau(tau, tau_value, at, inside, shared):
    x = tau_value if tau is None else tl.load(tau + at // shared, inside, other=1.0).to(tl.float32)
    return x


@triton.jit
def _forward(
    z, logits, seed, noise, tau, tau_value, n, tau_shared, NOISE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    start = _start(WIDE, BLOCK)
    at = start + tl.arange(0, BLOCK)[None, :]
    inside = at < n
    scores = tl.load(logits + at, inside, other=0.0).to(tl.float32)
    if NOISE > 0:
        drawn = _noise(seed, noise, start, at, inside, NOISE, BLOCK)
        scores = scores + _tau(tau, tau_value, at, inside, tau_shared) * drawn
    value = tl.where(scores == scores, tl.where(scores > 0, 1.0, 0.0), float("nan"))
    tl.store(z + at, value.to(z.dtype.element_ty), inside)


@triton.jit
def _backward(
    out, grad, logits, seed, noise, tau, scale, tau_value, scale_value, n, tau_shared,
    NOISE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = _start(WIDE, BLOCK)
    at = start + tl.arange(0, BLOCK)[None, :]
    inside = at < n
    g = tl.load(grad + at, inside, other=0.0).to(tl.float32)
    x = tl.load(logits + at, inside, other=0.0).to(tl.float32)
    if NOISE > 0:
        x = x + _noise(seed, noise, start, at, inside, NOISE, BLOCK)
    t = _tau(tau, tau_value, at, inside, tau_shared)
    factor = scale_value if scale is None else tl.load(scale)
    # p (1 - p) without the cancellation in 1 - p.
    e = tl.exp(-tl.abs(x) / t)
    y = g * (e / ((1 + e) * (1 + e))) * (factor / t)
    tl.store(out + at, y.to(out.dtype.element_ty), inside)


@triton.jit
def _backward_second_order(
    out, grad, logits, z, tau_f, tau_b, tau_f_value, tau_b_value, scale, n, f_shared, b_shared,
    WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = _start(WIDE, BLOCK) + tl.arange(0, BLOCK)[None, :]
    inside = at < n
    g = tl.load(grad + at, inside, other=0.0).to(tl.float32)
    l = tl.load(logits + at, inside, other=0.0).to(tl.float32)
    drawn = tl.load(z + at, inside, other=0.0).to(tl.float32)
    t_f = _tau(tau_f, tau_f_value, at, inside, f_shared)
    t_b = _tau(tau_b, tau_b_value, at, inside, b_shared)
    e_f = tl.exp(-tl.abs(l) / t_f)
    e_b = tl.exp(-tl.abs(l) / t_b)
    rare_f, rare_b = e_f / (1 + e_f), e_b / (1 + e_b)
    likelier = (drawn > 0.5) == (l > 0)
    m = tl.where(likelier, (1 - rare_b * 0.5) * rare_b, (1 - rare_b * rare_b) * 0.5)
    y = g * (m - rare_f * (1 - rare_f) * 0.5) * (scale / t_f)
    tl.store(out + at, y.to(out.dtype.element_ty), inside)
