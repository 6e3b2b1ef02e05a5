"""Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import direct, rows, surrogate
from decoupled_st.estimators.operations.noise import check_source, gumbel, logistic
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.gumbel_ste")
def categorical(
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
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Jang, Gu, Poole: Categorical reparameterization with Gumbel-Softmax, 2017. Maddison, Mnih, Teh: The concrete
        distribution, 2017.
    """
    if dim == -1 and mask is None and noise is None and generator is None:
        z = direct.choose_category(logits, 1.0, tau, grad_scale, perturbed=True)
        if z is not None:
            return z
    dim = rows.check_categories(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau, mask, noise):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, 1.0, tau, scale, perturbed=True, dim=dim, mask=mask, generator=generator, noise=noise)
    l = rows.allowed(logits, mask)
    trained = wanted(logits, tau)
    fixed = trained and surrogate.is_fixed(l, tau, scale)
    scores, _, empty = rows.centred(l.detach() if fixed else l, dim)
    scores = scores + gumbel(l, generator, noise)
    hard, largest = rows.one_hot(scores.detach(), dim, finite=empty is None and noise is None)
    if not trained:
        return hard.to(logits.dtype)
    source, scores = rows.filled(l, empty) if fixed else None, rows.filled(scores, empty)
    return surrogate.softmax(hard, scores, largest, dim, tau, scale, logits.dtype, source)


@exported("decoupled_st.binary.gumbel_ste")
def binary(
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
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    if noise is None and generator is None:
        z = direct.choose_bit(logits, 1.0, tau, grad_scale, perturbed=True)
        if z is not None:
            return z
    check_logits(logits)
    tau = check("tau", tau, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau, noise):
        from decoupled_st.kernels.binary import choose

        return choose(logits, 1.0, tau, scale, perturbed=True, generator=generator, noise=noise)
    l = to_compute(logits, logits)
    perturbed = l + logistic(l, generator, noise)
    hard = rows.threshold(perturbed.detach())
    if not wanted(logits, tau):
        return hard.to(logits.dtype)
    return surrogate.sigmoid(hard, perturbed, tau, scale, logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelSTE(Estimator):
    """Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits."""

    name: ClassVar[str] = "gumbel_ste"
    label: ClassVar[str] = "ST Gumbel-Softmax"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "perturbed"
    backward: ClassVar = "tau"
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
