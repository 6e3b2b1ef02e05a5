"""Decoupled ST: the sample at one temperature, the gradient at another."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import direct, rows, surrogate
from decoupled_st.estimators.operations.noise import check_source, logistic, perturb
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale
from decoupled_st.estimators.spec import FORWARD, TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.decoupled")
def categorical(
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
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Returns:
        One-hot tensor of the logits' shape and dtype.

    Example:
        >>> import torch
        >>> from decoupled_st.categorical import decoupled
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
    if dim == -1 and mask is None and noise is None and generator is None:
        z = direct.choose_category(logits, tau_f, tau_b, grad_scale)
        if z is not None:
            return z
    dim = rows.check_categories(logits, dim, mask)
    tau_f = check("tau_f", tau_f, logits, dim, zero=True)
    tau_b = check("tau_b", tau_b, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau_f, tau_b, mask, noise):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, tau_f, tau_b, scale, dim=dim, mask=mask, generator=generator, noise=noise)
    l = rows.allowed(logits, mask)
    drawn, trained = rows.drawn(tau_f), wanted(logits, tau_b)
    if not drawn and not trained:
        return rows.one_hot(l, dim)[0].to(logits.dtype)
    fixed = trained and surrogate.is_fixed(l, tau_b, scale)
    row = rows.centred(l.detach() if fixed else l, dim)
    scores = row.l if fixed else row.l.detach()
    if drawn:
        scores = perturb(scores, tau_f, generator, noise).detach()
    known = row.empty is None and noise is None and not isinstance(tau_f, Tensor)  # a tensor may hold a NaN
    hard, _ = rows.one_hot(scores, dim, finite=known)
    if not trained:
        return hard.to(logits.dtype)
    source, scores = rows.filled(l, row.empty) if fixed else None, rows.filled(row.l, row.empty)
    return surrogate.softmax(hard, scores, row.largest, dim, tau_b, scale, logits.dtype, source)


@exported("decoupled_st.binary.decoupled")
def binary(
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
        generator, noise, grad_scale: see `decoupled_st.binary`.

    Example:
        >>> import torch
        >>> from decoupled_st.binary import decoupled
        >>> logits = torch.tensor([-1.0, 2.0], requires_grad=True)
        >>> z = decoupled(logits, tau_f=0.0, tau_b=0.5)
        >>> z.sum().backward()
        >>> p = torch.sigmoid(logits.detach() / 0.5)
        >>> z.tolist(), torch.allclose(logits.grad, p * (1 - p) / 0.5)
        ([0.0, 1.0], True)
    """
    if noise is None and generator is None:
        z = direct.choose_bit(logits, tau_f, tau_b, grad_scale)
        if z is not None:
            return z
    check_logits(logits)
    tau_f = check("tau_f", tau_f, logits, zero=True)
    tau_b = check("tau_b", tau_b, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau_f, tau_b, noise):
        from decoupled_st.kernels.binary import choose

        return choose(logits, tau_f, tau_b, scale, generator=generator, noise=noise)
    l = to_compute(logits, logits)
    scores = l.detach()
    if rows.drawn(tau_f):
        scores = rows.perturbed(scores, tau_f, logistic(l, generator, noise)).detach()
    hard = rows.threshold(scores)
    if not wanted(logits, tau_b):
        return hard.to(logits.dtype)
    return surrogate.sigmoid(hard, l, tau_b, scale, logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class Decoupled(Estimator):
    """Decoupled ST: sample from softmax(l/tau_f), gradient through the Jacobian of softmax(l/tau_b)."""

    name: ClassVar[str] = "decoupled"
    label: ClassVar[str] = "Decoupled ST"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = "tau_f"
    surrogate: ClassVar[str] = "clean"
    backward: ClassVar = "tau_b"
    tau_f: float = field(metadata=FORWARD)
    tau_b: float = field(metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau_f

    def deterministic(self) -> "Decoupled":
        return Decoupled(tau_f=0.0, tau_b=self.tau_b)
