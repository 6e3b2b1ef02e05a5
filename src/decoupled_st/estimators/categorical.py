"""Straight-through estimators of a categorical choice: logits in, exact one-hot out.

Each function takes the logits of K categories along `dim` and returns a tensor of their shape and dtype that is
exactly one-hot along `dim`. They differ in how the category is chosen and in the gradient sent to the logits.

Common keyword arguments:
    dim: where the categories lie.
    mask: bool, True = allowed, broadcastable to the logits. A masked category, like one with logit -inf, is never
        chosen and gets zero gradient. A row with nothing allowed gives zeros; a row with a NaN or +inf, NaN.
    generator: the source of the draw. `torch.compile(fullgraph=True)` cannot trace one, and `torch.utils.checkpoint`
        does not restore one, so that its gradient would be wrong: pass `noise` there.
    noise: standard Gumbel noise of the logits' shape, instead of drawing it.
    grad_scale: float or tensor; multiplies the gradient sent to the logits and nothing else (second derivatives are not
        defined for it).

Temperatures are floats, or tensors that broadcast to the logits with size 1 along `dim`: one call serves many runs.
The values inside a tensor are not checked. Arithmetic is in float32 or better whatever the dtype.
"""

import math

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.noise import check_source, gumbel
from decoupled_st.estimators.straight_through import check_logits, emit, to_compute
from decoupled_st.estimators.temperature import Temperature, check, check_broadcast, check_scale, temper


def decoupled(
    logits: Tensor,
    *,
    tau_f: Temperature,
    tau_b: Temperature,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    r"""Decoupled ST: the sample at one temperature, the gradient at another.

        forward     z ~ Categorical(softmax(l / tau_f))           tau_f = 0: the argmax
        backward    dL/dl = (diag(p_b) - p_b p_b') dL/dz / tau_b,    p_b = softmax(l / tau_b)

    Args:
        logits: [..., K] with K along `dim`.
        tau_f: forward temperature, >= 0; inside a tensor 0 is the argmax, elementwise.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        dim, mask, generator, noise, grad_scale: see the module's docstring.

    Returns:
        One-hot tensor of the logits' shape and dtype.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
        >>> z = decoupled(logits, tau_f=0.0, tau_b=0.5)
        >>> z.tolist()
        [[0.0, 0.0, 1.0]]
        >>> (z * torch.tensor([1.0, 0.0, 0.0])).sum().backward()
        >>> p = torch.softmax(logits.detach() / 0.5, -1)
        >>> torch.allclose(logits.grad, (torch.tensor([1.0, 0, 0]) - p[..., :1]) * p / 0.5)
        True

    Reference:
        Shah, Yan, Mozer, Liu: Improving Discrete Optimisation Via Decoupled Straight-Through Estimator, 2026.
    """
    dim = _check(logits, dim, mask)
    tau_f = check("tau_f", tau_f, logits, dim, zero=True)
    tau_b = check("tau_b", tau_b, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale, tau_f, tau_b, mask, noise):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, tau_f, tau_b, scale, dim=dim, mask=mask, generator=generator, noise=noise)
    l = _centred(_allowed(logits, mask), dim)
    scores = l.detach()
    # l + tau_f * g orders the categories as l / tau_f + g does, and at tau_f = 0 is the argmax.
    if isinstance(tau_f, Tensor) or tau_f > 0:
        scores = (scores + tau_f * gumbel(l, generator, noise)).detach()
    hard, empty = _choose(scores, dim)
    tempered, gain = temper(l.masked_fill(empty, 0.0), tau_b, scale)
    return emit(hard, torch.softmax(tempered, dim), gain, logits.dtype)


def softmax_ste(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Softmax STE: sample and gradient at one temperature, `decoupled` on its diagonal.

        forward     z ~ Categorical(p),                     p = softmax(l / tau)
        backward    dL/dl = (diag(p) - p p') dL/dz / tau

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        dim, mask, generator, noise, grad_scale: see the module's docstring.

    Reference:
        Hinton: Neural networks for machine learning, lecture 15d, 2012.
    """
    check("tau", tau, logits, _check(logits, dim, mask))
    return decoupled(
        logits, tau_f=tau, tau_b=tau, dim=dim, mask=mask, generator=generator, noise=noise, grad_scale=grad_scale
    )


def gumbel_ste(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits.

        forward     z = onehot(argmax(l + g)),              g ~ Gumbel(0, 1): a sample of softmax(l), whatever tau
        backward    dL/dl = (diag(p) - p p') dL/dz / tau,   p = softmax((l + g) / tau)

    The value and gradient of `torch.nn.functional.gumbel_softmax(logits, tau, hard=True)` for the same noise.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature of the surrogate, > 0.
        dim, mask, generator, noise, grad_scale: see the module's docstring.

    Reference:
        Jang, Gu, Poole: Categorical reparameterization with Gumbel-Softmax, 2017. Maddison, Mnih, Teh: The concrete
        distribution, 2017.
    """
    dim = _check(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale, tau, mask, noise):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, 1.0, tau, scale, perturbed=True, dim=dim, mask=mask, generator=generator, noise=noise)
    l = _centred(_allowed(logits, mask), dim)
    perturbed = l + gumbel(l, generator, noise)
    hard, empty = _choose(perturbed.detach(), dim)
    tempered, gain = temper(perturbed.masked_fill(empty, 0.0), tau, scale)
    return emit(hard, torch.softmax(tempered, dim), gain, logits.dtype)


def identity_ste(
    logits: Tensor,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Identity STE: the argmax forward, the gradient unchanged.

        forward     z = onehot(argmax(l))
        backward    dL/dl = dL/dz

    Args:
        logits: [..., K] with K along `dim`.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        dim, mask, grad_scale: see the module's docstring.

    Reference:
        Bengio, Leonard, Courville: Estimating or propagating gradients through stochastic neurons, 2013.
    """
    dim = _check(logits, dim, mask)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.serves(logits, scale, mask):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, 0.0, None, scale, dim=dim, mask=mask, generator=None, noise=None)
    l = _allowed(logits, mask)
    hard, _ = _choose(l.detach(), dim)
    finite, gain = temper(l.masked_fill(l.isinf(), 0.0), 1.0, scale)
    return emit(hard, finite, gain, logits.dtype)


def soft(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """The relaxation with no discrete step, `softmax(l / tau)`: a reference, not an estimator.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        dim, mask, grad_scale: see the module's docstring.
    """
    dim = _check(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    check_source(logits, generator, noise)
    l = _centred(_allowed(logits, mask), dim)
    empty = l.detach().amax(dim, keepdim=True) == -math.inf
    tempered, gain = temper(l.masked_fill(empty, 0.0), tau, check_scale(grad_scale, l))
    p = torch.softmax(tempered, dim).masked_fill(empty, 0.0)
    return emit(p.detach(), p, gain, logits.dtype)


def _check(logits: Tensor, dim: int, mask: Tensor | None) -> int:
    """`dim` counted from the end, once logits, `dim` and mask fit together."""
    check_logits(logits)
    if not hasattr(dim, "__index__"):
        raise TypeError(f"dim must be an integer, got dim={dim!r}")
    if not -logits.dim() <= dim < logits.dim():
        raise ValueError(f"dim must name a dimension of the logits, got dim={dim} for shape {tuple(logits.shape)}")
    if logits.shape[dim] == 0:
        raise ValueError(f"there must be at least one category, got shape {tuple(logits.shape)} with dim={dim}")
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool):
        raise TypeError(
            f"mask must be a bool tensor (True = allowed), got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    if mask is not None:
        check_broadcast("mask", mask, logits)
    return dim - logits.dim() if dim >= 0 else dim


def _allowed(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits in the dtype of computation, with -inf where the mask forbids."""
    l = to_compute(logits, logits)
    return l if mask is None else l.masked_fill(~mask, -math.inf)


def _centred(l: Tensor, dim: int) -> Tensor:
    """The logits less the largest of their row: the same choice and surrogate, without what rounding and overflow would
    do to large ones. A row whose largest is not finite stays as it is."""
    top = l.detach().amax(dim, keepdim=True)
    return l - top.nan_to_num(0.0, posinf=0.0, neginf=0.0)


def _choose(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The argmax as a one-hot, and which rows have nothing to choose from (theirs is zero).

    max() takes a NaN for the largest, so a row with one is found by its top and made NaN: an error upstream must
    not come out as a plausible sample.
    """
    top, index = scores.max(dim, keepdim=True)
    empty = top == -math.inf
    hard = torch.zeros_like(scores).scatter(dim, index, 1.0).masked_fill_(empty, 0.0)
    return hard.masked_fill_(~(top < math.inf), math.nan), empty
