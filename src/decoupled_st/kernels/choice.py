"""The choices of the estimators, fused: forward reads the logits and writes z, backward reads the logits and the
incoming gradient and writes the gradient. Nothing else of the logits' size is kept or moved.

This is the host's side: operators, autograd and launches. The kernels are in `categorical` and `binary`.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from decoupled_st.kernels import binary, can_take_gradient, categorical, is_watched, plain_gradient
from decoupled_st.kernels.noise import draw_seed, noise_of
from decoupled_st.kernels.rows import as_stored, by_row, number

CLEAN, PERTURBED, SECOND_ORDER = "clean", "perturbed", "second order"


def has(surrogate: str, call: Any) -> bool:
    """True where there are kernels for a `Call` as it is called. Those of the second order are no operators, and hold
    a whole row on chip."""
    if surrogate != SECOND_ORDER:
        return True
    return not is_watched() and (call.dim is None or call.logits.shape[call.dim] <= categorical.ONE_PASS)


def choose(
    call: Any, surrogate: str, taus: tuple[float | Tensor, float | Tensor], define: Callable[..., Tensor]
) -> Tensor:
    """argmax(l + tau_f * noise) of a checked `Call`, with the gradient of softmax(l / tau_b); for `PERTURBED` that of
    softmax((l + noise) / tau_b), for `SECOND_ORDER` that of ReinMax. `define(logits, noise)` is the same in plain
    operations, for gradients that no kernel can take."""
    tau_f, tau_b = taus
    logits, dim, seed, noise = call.logits, call.dim, None, None
    if isinstance(tau_f, Tensor) or tau_f > 0:
        if call.noise is None:
            seed = draw_seed(logits.device, call.generator)
        else:
            noise = _stored(call.noise, dim)
    mask = None if call.mask is None else by_row(call.mask, logits.shape, dim, logits.shape[dim])
    numbers = (*number(tau_f, logits, dim), *number(tau_b, logits, dim), *number(call.scale, logits, dim))
    kernels = binary if dim is None else categorical
    if is_watched():
        z = (BINARY if dim is None else CATEGORICAL)[0](
            _stored(logits, dim), seed, noise, mask, *numbers, surrogate == PERTURBED
        )
    elif logits.requires_grad and torch.is_grad_enabled():
        z = Choice.apply(logits, (kernels, surrogate, define, dim, call.noise, seed, noise, mask, *numbers))
    else:
        z = kernels.forward(_stored(logits, dim), seed, noise, mask, *numbers[:2])
    return _unmoved(z, dim)


def _stored(x: Tensor, dim: int | None) -> Tensor:
    """The tensor with its categories last, contiguous."""
    return as_stored(x if dim in (None, -1) else x.movedim(dim, -1))


def _unmoved(x: Tensor, dim: int | None) -> Tensor:
    return x if dim in (None, -1) else x.movedim(-1, dim)


class Choice(torch.autograd.Function):
    """A choice as called eagerly: the dispatcher would take longer than a small kernel. What has no gradient comes as
    one argument, since each takes its time."""

    @staticmethod
    def forward(ctx, logits, others):
        kernels, surrogate, define, dim, given, seed, noise, mask, tau_f, f_value, tau_b, b_value, *scale = others
        z = kernels.forward(_stored(logits, dim), seed, noise, mask, tau_f, f_value)
        ctx.rest = kernels, surrogate, define, dim, f_value, b_value, *scale[1:]
        if surrogate == CLEAN:  # the noise is in the choice alone
            seed = noise = given = None
        kept = (z, tau_f) if surrogate == SECOND_ORDER else (None, None)
        ctx.save_for_backward(logits, *kept, given, seed, noise, mask, tau_b, scale[0])
        return z

    @staticmethod
    def backward(ctx, grad):
        logits, z, tau_f, given, seed, noise, mask, tau_b, scale = ctx.saved_tensors
        kernels, surrogate, define, dim, f_value, b_value, scale_value = ctx.rest
        watched = is_watched()  # by compiled autograd, which traces this
        if not can_take_gradient(grad) or (watched and surrogate == SECOND_ORDER):
            if seed is not None:
                given = noise_of(seed, logits.shape, dim)
            return plain_gradient(lambda l: define(l, given), logits, _unmoved(grad, dim)), None
        stored = as_stored(grad), _stored(logits, dim)
        if surrogate == SECOND_ORDER:
            taus = tau_f, f_value, tau_b, b_value
            result = kernels.backward_second_order(*stored, z.detach(), mask, *taus, scale_value)
        else:
            backward = (BINARY if dim is None else CATEGORICAL)[1] if watched else kernels.backward
            result = backward(*stored, seed, noise, mask, tau_b, b_value, scale, scale_value)
        return _unmoved(result, dim), None


# Operators of our own make the kernels opaque to torch.compile, which can add nothing to them: it would only trace the
# launch, and could not do that where a temperature is a changing float. They also run under Triton's interpreter.
_library = torch.library.Library("decoupled_st", "FRAGMENT")
_INPUTS = "Tensor logits, Tensor? seed, Tensor? noise, Tensor? mask"


def _save(ctx, inputs, output):
    logits, seed, noise, mask, _, _, tau, tau_value, scale, scale_value, perturbed = inputs
    ctx.numbers = tau_value, scale_value
    ctx.save_for_backward(logits, *((seed, noise) if perturbed else (None, None)), mask, tau, scale)


def _gradient(backward, ctx, grad):
    *tensors, tau, scale = ctx.saved_tensors
    tau_value, scale_value = ctx.numbers
    return backward(as_stored(grad), *tensors, tau, tau_value, scale, scale_value), *(None,) * 10


def _register(name: str, kernels: ModuleType) -> tuple[Any, Any]:
    """The operators of a kind of choice: forward and backward."""
    _library.define(
        f"{name}({_INPUTS}, Tensor? tau_f, float tau_f_value, Tensor? tau_b, float tau_b_value, Tensor? scale, "
        "float scale_value, bool perturbed) -> Tensor"
    )
    _library.define(
        f"{name}_backward(Tensor grad, {_INPUTS}, Tensor? tau, float tau_value, Tensor? scale, float scale_value) "
        "-> Tensor"
    )
    _library.impl(name, lambda *inputs: kernels.forward(*inputs[:6]), "CompositeExplicitAutograd")
    _library.impl(f"{name}_backward", kernels.backward, "CompositeExplicitAutograd")
    forward, backward = (getattr(torch.ops.decoupled_st, of) for of in (name, f"{name}_backward"))
    torch.library.register_fake(f"decoupled_st::{name}", lambda logits, *_: torch.empty_like(logits))
    torch.library.register_fake(f"decoupled_st::{name}_backward", lambda grad, logits, *_: torch.empty_like(logits))
    torch.library.register_autograd(f"decoupled_st::{name}", partial(_gradient, backward), setup_context=_save)
    return forward, backward


BINARY, CATEGORICAL = _register("binary", binary), _register("categorical", categorical)
