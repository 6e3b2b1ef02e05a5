"""The categorical estimators, fused: forward reads the logits and writes z, backward reads the logits and the incoming
gradient and writes the gradient. Nothing else of the logits' size is kept or moved.

This is the host's side: operators, autograd and launches. The kernels are in `categorical_kernels`.
"""

import math
from functools import cache

import torch
import triton
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

from decoupled_st.kernels import can_take_gradient, is_watched
from decoupled_st.kernels.categorical_kernels import _backward, _backward_split, _forward, _forward_split
from decoupled_st.kernels.launch import launch
from decoupled_st.kernels.noise import draw_seed, write_out
from decoupled_st.kernels.rows import as_stored, blocks, by_row, number

ONE_PASS = 16384
"""The longest row held on chip."""


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
    logits, seed, noise, mask, _, _, tau, tau_value, scale, scale_value, identity, perturbed = inputs
    ctx.numbers = (tau_value, scale_value, identity)
    ctx.save_for_backward(logits, *((seed, noise) if perturbed else (None, None)), mask, tau, scale)


def _gradient(ctx, grad, backward, watched=None):
    logits, seed, noise, mask, tau, scale = ctx.saved_tensors
    tau_value, scale_value, identity = ctx.numbers
    if identity or torch.is_grad_enabled() or not can_take_gradient(grad, watched):  # grad enabled: create_graph=True
        tau, scale = tau_value if tau is None else tau, scale_value if scale is None else scale
        if identity:
            result = _identity(grad, logits, mask, scale)
        else:
            result = _differentiable(grad, logits, seed, noise, mask, tau, scale)
    else:
        result = backward(as_stored(grad), logits, seed, noise, mask, tau, tau_value, scale, scale_value)
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
        watched = is_watched()  # by compiled autograd, which traces this
        backward = torch.ops.decoupled_st.categorical_backward if watched else _run_backward
        return _gradient(ctx, grad, backward, watched), None


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
    g = g - g.gather(-1, l.detach().argmax(-1, keepdim=True))  # as `operations.rows.softmax` does, and why
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


FORWARD, BACKWARD = (_forward, _forward_split), (_backward, _backward_split)


def specify(kernels, logits, source, tau, mask=None):
    """The one of a pair of kernels that is launched, rows of a program, and the kernel's integers, constants and warps.
    `source` of the noise: 0 for none, 1 for a seed, 2 for a tensor."""
    K = logits.shape[-1]
    rows = logits.numel() // K
    height, block, warps = tiling(K)
    counts = (rows, 1 if mask is None else rows // len(mask), 1 if tau is None else rows // len(tau))
    one_pass, split = kernels
    return one_pass if block >= K else split, height, counts, (source, K, height, block), warps


def _launch(kernels, tensors, numbers, logits, seed, noise, mask, tau, *scale):
    source = 0 if seed is None and noise is None else 1 if noise is None else 2
    kernel, height, counts, constants, warps = specify(kernels, logits, source, tau, mask)
    tensors = (*tensors, logits, seed, noise, None if mask is None else mask.view(torch.uint8), tau, *scale)
    launch(kernel, blocks(counts[0], height), tensors, numbers, counts, constants, warps)


def _run_forward(logits, seed, noise, mask, tau, tau_value, *_):
    z = torch.empty_like(logits)
    _launch(FORWARD, (z,), (tau_value,), logits, seed, noise, mask, tau)
    return z


def _run_backward(grad, logits, seed, noise, mask, tau, tau_value, scale, scale_value):
    out = torch.empty_like(logits)
    _launch(BACKWARD, (out, grad), (tau_value, scale_value), logits, seed, noise, mask, tau, scale)
    return out


_library.impl("categorical", _run_forward, "CompositeExplicitAutograd")
_library.impl("categorical_backward", _run_backward, "CompositeExplicitAutograd")
