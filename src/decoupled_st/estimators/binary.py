"""Straight-through estimators of a binary neuron: one log-odds in, exactly 0 or 1 out.

The neuron is the two-way choice between logits (0, l). Each function takes log-odds of any shape and returns a tensor
of that shape and dtype. A log-odds of +-inf is a certain 1 or 0 with zero gradient; NaN gives NaN.

Common keyword arguments:
    generator: the source of the draw. `torch.compile(fullgraph=True)` cannot trace one, and `torch.utils.checkpoint`
        does not restore one, so that its gradient would be wrong: pass `noise` there.
    noise: standard logistic noise of the logits' shape, instead of drawing it.
    grad_scale: float or tensor; multiplies the gradient sent to the logits and nothing else.

Temperatures are floats, or tensors that broadcast to the logits; the values inside a tensor are not checked.
"""

import math

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.noise import check_source, logistic
from decoupled_st.estimators.straight_through import check_logits, emit, to_compute
from decoupled_st.estimators.temperature import Temperature, check, check_scale, temper


def decoupled(
    logits: Tensor,
    *,
    tau_f: Temperature,
    tau_b: Temperature,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Decoupled ST: the sample at one temperature, the gradient at another.

        forward     P(z = 1) = sigmoid(l / tau_f)           tau_f = 0: z = 1 where l > 0
        backward    dL/dl = p_b (1 - p_b) dL/dz / tau_b,    p_b = sigmoid(l / tau_b)

    Args:
        logits: log-odds, any shape.
        tau_f: forward temperature, >= 0; inside a tensor 0 is the threshold, elementwise.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        generator, noise, grad_scale: see the module's docstring.

    Example:
        >>> import torch
        >>> logits = torch.tensor([-1.0, 2.0], requires_grad=True)
        >>> z = decoupled(logits, tau_f=0.0, tau_b=0.5)
        >>> z.sum().backward()
        >>> p = torch.sigmoid(logits.detach() / 0.5)
        >>> z.tolist(), torch.allclose(logits.grad, p * (1 - p) / 0.5)
        ([0.0, 1.0], True)
    """
    check_logits(logits)
    tau_f = check("tau_f", tau_f, logits, zero=True)
    tau_b = check("tau_b", tau_b, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale, tau_f, tau_b, noise):
        from decoupled_st.kernels.binary import choose

        return choose(logits, tau_f, tau_b, scale, generator=generator, noise=noise)
    l = to_compute(logits, logits)
    scores = l.detach()
    if isinstance(tau_f, Tensor) or tau_f > 0:
        scores = (scores + tau_f * logistic(l, generator, noise)).detach()
    tempered, gain = temper(l, tau_b, scale)
    return emit(_choose(scores), torch.sigmoid(tempered), gain, logits.dtype)


def softmax_ste(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Softmax STE (for two categories, the sigmoid STE): sample and gradient at one temperature.

        forward     P(z = 1) = p,                        p = sigmoid(l / tau)
        backward    dL/dl = p (1 - p) dL/dz / tau

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise, grad_scale: see the module's docstring.
    """
    check_logits(logits)
    check("tau", tau, logits)
    return decoupled(logits, tau_f=tau, tau_b=tau, generator=generator, noise=noise, grad_scale=grad_scale)


def gumbel_ste(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Straight-Through Gumbel-Softmax of two categories (binary concrete): gradient at the perturbed log-odds.

        forward     z = 1 where l + u > 0,               u ~ Logistic(0, 1): P(z = 1) = sigmoid(l), whatever tau
        backward    dL/dl = p (1 - p) dL/dz / tau,       p = sigmoid((l + u) / tau)

    Args:
        logits: log-odds, any shape.
        tau: temperature of the surrogate, > 0.
        generator, noise, grad_scale: see the module's docstring.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale, tau, noise):
        from decoupled_st.kernels.binary import choose

        return choose(logits, 1.0, tau, scale, perturbed=True, generator=generator, noise=noise)
    l = to_compute(logits, logits)
    perturbed = l + logistic(l, generator, noise)
    tempered, gain = temper(perturbed, tau, scale)
    return emit(_choose(perturbed.detach()), torch.sigmoid(tempered), gain, logits.dtype)


def identity_ste(
    logits: Tensor,
    *,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Identity STE: the threshold forward, the gradient unchanged.

        forward     z = 1 where l > 0
        backward    dL/dl = dL/dz

    Args:
        logits: log-odds, any shape.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        grad_scale: see the module's docstring.
    """
    check_logits(logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale):
        from decoupled_st.kernels.binary import choose

        return choose(logits, 0.0, None, scale, generator=None, noise=None)
    l = to_compute(logits, logits)
    finite, gain = temper(l.masked_fill(l.isinf(), 0.0), 1.0, scale)
    return emit(_choose(l.detach()), finite, gain, logits.dtype)


def soft(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """The relaxation with no discrete step, `sigmoid(l / tau)`: a reference, not an estimator.

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        grad_scale: see the module's docstring.
    """
    check_logits(logits)
    check_source(logits, generator, noise)
    l = to_compute(logits, logits)
    tempered, gain = temper(l, check("tau", tau, logits), check_scale(grad_scale, logits))
    p = torch.sigmoid(tempered)
    return emit(p.detach(), p, gain, logits.dtype)


def _choose(scores: Tensor) -> Tensor:
    """1 where the score is above 0; a tie is 0, as the argmax of (0, l) takes the first; NaN stays NaN."""
    return (scores > 0).to(scores.dtype).masked_fill(scores.isnan(), math.nan)
