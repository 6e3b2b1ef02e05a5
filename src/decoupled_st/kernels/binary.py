"""The binary estimators, fused: one element at a time, nothing kept for backward but the logits and a seed."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

from decoupled_st.kernels import can_take_gradient, is_watched
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import draw_seed, logistic, write_out
from decoupled_st.kernels.rows import as_stored, blocks, number

_BLOCK, _WARPS = 2048, 4


def choose(
    logits: Tensor,
    tau_f: float | Tensor,
    tau_b: float | Tensor | None,
    grad_scale: float | Tensor,
    *,
    perturbed: bool = False,
    generator: torch.Generator | None,
    noise: Tensor | None,
) -> Tensor:
    """1 where l + tau_f * u > 0, with the gradient of sigmoid(l / tau_b).

    `grad_scale` is one number. `perturbed`: the surrogate is at l + u; without `tau_b` it is the identity. The caller
    has checked the arguments.
    """
    seed = None
    if isinstance(tau_f, float) and tau_f == 0:
        noise = None
    elif noise is None:
        seed = draw_seed(logits.device, generator)
    else:
        noise = as_stored(noise)
    numbers = (*number(tau_f, logits), *number(tau_b, logits), *number(grad_scale, logits))
    stored = as_stored(logits)
    others = (seed, noise, *numbers, tau_b is None, perturbed)
    if is_watched():
        return torch.ops.decoupled_st.binary(stored, *others)
    if logits.requires_grad and torch.is_grad_enabled():
        return _apply(unwrap_if_dead(stored), others)
    return _run_forward(stored, *others)


def _save(ctx, inputs, output):
    logits, seed, noise, _, _, tau, tau_value, scale, scale_value, identity, perturbed = inputs
    ctx.numbers = (tau_value, scale_value, identity)
    ctx.save_for_backward(logits, *((seed, noise) if perturbed else (None, None)), tau, scale)


def _gradient(ctx, grad, backward, watched=None):
    logits, seed, noise, tau, scale = ctx.saved_tensors
    tau_value, scale_value, identity = ctx.numbers
    if identity or torch.is_grad_enabled() or not can_take_gradient(grad, watched):  # grad enabled: create_graph=True
        tau, scale = tau_value if tau is None else tau, scale_value if scale is None else scale
        if identity:
            result = (grad * scale).to(grad.dtype).masked_fill(logits.isinf(), 0.0)
        else:
            result = _differentiable(grad, logits, seed, noise, tau, scale)
    else:
        result = backward(as_stored(grad), logits, seed, noise, tau, tau_value, scale, scale_value)
    return result


class _Choose(torch.autograd.Function):
    """The operator as called eagerly, as in `categorical`."""

    @staticmethod
    def forward(ctx, logits, others):
        inputs = (logits, *others)
        _save(ctx, inputs, None)
        return _run_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        watched = is_watched()  # by compiled autograd, which traces this
        backward = torch.ops.decoupled_st.binary_backward if watched else _run_backward
        return _gradient(ctx, grad, backward, watched), None


# `Function.apply` looks for transforms of torch.func first, as `can_run_fused` has done.
_apply = super(torch.autograd.Function, _Choose).apply


def _differentiable(grad, logits, seed, noise, tau, scale):
    """What the backward kernel computes, in operations that can be differentiated once more."""
    l = logits.float()
    if seed is not None:
        noise = write_out(seed, 1, l.numel(), gumbel=False).view(l.shape)
    if noise is not None:
        l = l + noise.float()
    if isinstance(tau, Tensor):
        tau = tau.repeat_interleave(l.numel() // len(tau), 0).view(l.shape)
    t = l / tau
    p = torch.sigmoid(torch.where(t > 0, -t, t))  # the smaller of p and 1 - p, as in `operations.rows.sigmoid`
    return (grad.float() * p * (1 - p) * (scale / tau)).to(logits.dtype)


_library = torch.library.Library("decoupled_st", "FRAGMENT")
_INPUTS = "Tensor logits, Tensor? seed, Tensor? noise, "
_library.define(
    f"binary({_INPUTS} Tensor? tau_f, float tau_f_value, Tensor? tau_b, float tau_b_value, "
    "Tensor? scale, float scale_value, bool identity, bool perturbed) -> Tensor"
)
_library.define(
    f"binary_backward(Tensor grad, {_INPUTS} Tensor? tau, float tau_value, Tensor? scale, float scale_value) -> Tensor"
)
torch.library.register_fake("decoupled_st::binary", lambda logits, *_: torch.empty_like(logits))
torch.library.register_fake("decoupled_st::binary_backward", lambda grad, logits, *_: torch.empty_like(logits))
torch.library.register_autograd(
    "decoupled_st::binary",
    lambda ctx, grad: (_gradient(ctx, grad, torch.ops.decoupled_st.binary_backward), *(None,) * 10),
    setup_context=_save,
)


def specify(kernel, logits, source, tau):
    """The same as `specify` of `categorical`; each element is a row."""
    n = logits.numel()
    return kernel, _BLOCK, (n, 1 if tau is None else n // len(tau)), (source, n >= 2**31 - _BLOCK, _BLOCK), _WARPS


def _launch(kernel, tensors, numbers, logits, seed, noise, tau, *scale):
    source = 0 if seed is None and noise is None else 1 if noise is None else 2
    kernel, height, counts, constants, warps = specify(kernel, logits, source, tau)
    tensors = (*tensors, logits, seed, noise, tau, *scale)
    launch(kernel, blocks(counts[0], height), tensors, numbers, counts, constants, warps)


def _run_forward(logits, seed, noise, tau, tau_value, *_):
    z = torch.empty_like(logits)
    _launch(_forward, (z,), (tau_value,), logits, seed, noise, tau)
    return z


def _run_backward(grad, logits, seed, noise, tau, tau_value, scale, scale_value):
    out = torch.empty_like(logits)
    _launch(_backward, (out, grad), (tau_value, scale_value), logits, seed, noise, tau, scale)
    return out


_library.impl("binary", _run_forward, "CompositeExplicitAutograd")
_library.impl("binary_backward", _run_backward, "CompositeExplicitAutograd")


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
    z, logits, seed, noise, tau, tau_value, n, tau_shared,
    NOISE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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


FORWARD, BACKWARD = _forward, _backward
