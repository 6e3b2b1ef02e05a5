"""The usual call in as few steps as there can be: on a small tensor they take longer than the arithmetic.

One test recognises it: a contiguous tensor, temperatures that are numbers, no scale, and nobody who traces or watches.
On a CPU, in float32 or float64, its operations then follow each other. What is not recognised is left to the
estimators' own way, which gives the same bits and says what is wrong with an argument. The caller has seen that there
is no mask, noise or generator, and that categories come last.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.autograd import forward_ad

from decoupled_st import kernels
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.noise import exponential_on_cpu
from decoupled_st.estimators.operations.surrogate import number
from decoupled_st.estimators.operations.temperature import COMMON, Temperature

# By names of this module's own: a look into torch's, which are thousands, takes its time.
_DTYPES = (torch.float32, torch.float64)
_LEAST, _MOST = COMMON
_TENSORS, _INTERPRETED, _STRIDED = kernels.TENSORS, kernels.INTERPRETED, torch.strided
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_add, _softmax, _softmax_backward = torch.add, torch.softmax, torch._softmax_backward_data
Options = tuple[float, float, bool]
"""tau_f, tau_b, and whether the surrogate is at the perturbed logits; then tau_f is 1."""


class _UnusualError(ValueError):
    """A NaN, or a row with +inf or nothing to choose from: nothing has been drawn yet."""


def is_usual(logits: Tensor, tau_f: Temperature, tau_b: Temperature, grad_scale: float | Tensor) -> bool:
    """True for the usual call; `tau_f` may be 0, `tau_b` may not."""
    return (
        not _is_compiling()  # first, since torch.compile reads no further then
        and type(logits) in _TENSORS
        and logits.is_cpu
        and not _INTERPRETED
        and type(tau_b) is float
        and _LEAST < tau_b < _MOST
        and type(tau_f) is float
        and (_LEAST < tau_f < _MOST or tau_f == 0)
        and type(grad_scale) is float
        and grad_scale == 1
        and forward_ad._current_level < 0  # this and what follows, as `kernels.traced`
        and peek_interpreter_stack() is None
        and _len_torch_dispatch_stack() == 0
        and not _is_tracing()
        and not is_functorch_wrapped_tensor(logits)  # left over from a transform
        and logits.layout is _STRIDED
        and logits.is_contiguous()
        and logits.dim() > 0
        and logits.numel() > 0
    )


def choose_category(
    logits: Tensor, tau_f: Temperature, tau_b: Temperature, grad_scale: float | Tensor, *, perturbed: bool = False
) -> Tensor | None:
    """One-hot along the last dimension of argmax(l + tau_f * g), with the gradient of softmax(l / tau_b), or if
    `perturbed`, where tau_f is 1, of softmax((l + g) / tau_b); None where the call or a row is not as usual."""
    if not is_usual(logits, tau_f, tau_b, grad_scale):
        return None
    if logits.dtype not in _DTYPES:
        return None
    try:
        if logits.requires_grad and _is_grad_enabled():
            return _apply_softmax(logits, (tau_f, tau_b, perturbed))[0]
        if tau_f == 0:
            return rows.one_hot(logits, -1)[0]
        return _draw_category(logits, tau_f, perturbed)[0]  # type: ignore[arg-type]
    except (_UnusualError, NotImplementedError):  # the latter from nested tensors, which are not worth a look before
        return None


def choose_bit(
    logits: Tensor, tau_f: Temperature, tau_b: Temperature, grad_scale: float | Tensor, *, perturbed: bool = False
) -> Tensor | None:
    """1 where l + tau_f * u > 0, else 0, with the gradient of sigmoid(l / tau_b), or if `perturbed`, where tau_f is 1,
    of sigmoid((l + u) / tau_b); None where the call is not usual or there is a NaN."""
    if not is_usual(logits, tau_f, tau_b, grad_scale):
        return None
    try:
        if logits.dtype not in _DTYPES or not logits.equal(logits):
            return None
    except NotImplementedError:  # a nested tensor, as above
        return None
    if logits.requires_grad and _is_grad_enabled():
        return _apply_sigmoid(logits, (tau_f, tau_b, perturbed))[0]
    return _perturbed(logits, tau_f).gt_(number(0.0, logits.dtype))  # type: ignore[arg-type]


def _perturbed(logits: Tensor, tau_f: float) -> Tensor:
    """Log-odds in memory of their own, with logistic noise."""
    if tau_f == 0:
        return logits.clone()
    first, second = exponential_on_cpu(logits, None), exponential_on_cpu(logits, None)
    noise = first.div_(second).log_()
    return _add(logits, noise, alpha=tau_f, out=noise)


def _draw_category(logits: Tensor, tau_f: float, perturbed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The choice; the scores of the surrogate, less the largest logit of their row, and where the largest score is."""
    top, largest = logits.max(-1, True)
    scores = logits - top
    if not scores.equal(scores):  # as in `rows.centred`
        raise _UnusualError
    if tau_f > 0:
        space = exponential_on_cpu(scores, None).log_()
        if perturbed:
            chosen = largest = scores.sub_(space).max(-1, True)[1]  # takes less time than argmax
        else:
            chosen = _add(scores, space, alpha=-tau_f, out=space).max(-1, True)[1]
        zeros = space.zero_()
    else:
        chosen, zeros = largest, torch.zeros_like(scores)
    return zeros.scatter_(-1, chosen, 1.0), scores, largest


def _incoming(g: Tensor | None, again: Tensor | None) -> Tensor | None:
    """The gradient of the surrogate: that of the choice, and the one of a second derivative."""
    if again is None or g is None:
        return g if again is None else again
    return g + again


class _Softmax(torch.autograd.Function):
    """The same as `surrogate._Softmax`, with the draw inside, where autograd records nothing."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, options: Options) -> tuple[Tensor, Tensor]:
        tau_f, tau_b, perturbed = options
        hard, scores, largest = _draw_category(logits, tau_f, perturbed)
        tau = number(tau_b, scores.dtype)
        p = _softmax(scores.div_(tau), -1)
        ctx.save_for_backward(p, largest, tau)
        ctx.set_materialize_grads(False)
        return hard, p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        g = _incoming(*grads)
        if g is None:
            return None, None
        p, largest, tau = ctx.saved_tensors
        h = g - g.gather(-1, largest)  # as in `rows.softmax`, and why
        return _softmax_backward(h, p, -1, p.dtype).div_(tau), None


class _Sigmoid(torch.autograd.Function):
    """The same as `surrogate._Sigmoid`, with the draw inside, where autograd records nothing."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, options: Options) -> tuple[Tensor, Tensor]:
        tau_f, tau_b, perturbed = options
        tau, scores = number(tau_b, logits.dtype), _perturbed(logits, tau_f)
        t = (scores if perturbed else logits) / number(-tau_b, logits.dtype)
        y = t.copysign(number(-1.0, t.dtype)).sigmoid_().copysign_(t)
        ctx.save_for_backward(y, tau)
        ctx.set_materialize_grads(False)
        return scores.gt_(number(0.0, t.dtype)), y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        g = _incoming(*grads)
        if g is None:
            return None, None
        y, tau = ctx.saved_tensors
        return torch.ops.aten.sigmoid_backward(g, y.abs()).div_(tau), None


_apply_softmax: Callable[..., tuple[Tensor, Tensor]] = super(torch.autograd.Function, _Softmax).apply
_apply_sigmoid: Callable[..., tuple[Tensor, Tensor]] = super(torch.autograd.Function, _Sigmoid).apply
