"""The relaxed Gumbel-Softmax: random, and no discrete step."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows, surrogate
from decoupled_st.estimators.operations.noise import check_source, gumbel, logistic
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.gumbel_soft")
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
    """The relaxed Gumbel-Softmax (concrete) sample: random, and no discrete step.

        forward     z = softmax((l + g) / tau),             g ~ Gumbel(0, 1): its argmax is a sample of softmax(l)
        backward    the derivative of that

    The value and gradient of `torch.nn.functional.gumbel_softmax(logits, tau, hard=False)` for the same noise.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0. A tensor that requires grad receives its gradient.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Jang, Gu, Poole: Categorical reparameterization with Gumbel-Softmax, 2017. Maddison, Mnih, Teh: The concrete
        distribution, 2017.
    """
    dim = rows.check_categories(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = rows.allowed(logits, mask)
    row = rows.centred(l, dim)
    perturbed = rows.filled(row.l + gumbel(l, generator, noise), row.empty)
    p = torch.softmax((perturbed / tau).detach(), dim)
    if row.empty is not None:
        p = p.masked_fill(row.empty, 0.0)
    if not wanted(logits, tau):
        return p.to(logits.dtype)
    largest = perturbed.detach().argmax(dim, keepdim=True)
    return surrogate.softmax(p, perturbed, largest, dim, tau, scale, logits.dtype)


@exported("decoupled_st.binary.gumbel_soft")
def binary(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """The relaxed Gumbel-Softmax of two categories (binary concrete): random, and no discrete step.

        forward     z = sigmoid((l + u) / tau),          u ~ Logistic(0, 1): z > 1/2 with probability sigmoid(l)
        backward    the derivative of that

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = to_compute(logits, logits)
    perturbed = l + logistic(l, generator, noise)
    p = torch.sigmoid((perturbed / tau).detach())
    if not wanted(logits, tau):
        return p.to(logits.dtype)
    return surrogate.sigmoid(p, perturbed, tau, scale, logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelSoft(Estimator):
    """The relaxed Gumbel-Softmax, random and with no discrete step; under `deterministic()` the argmax is taken."""

    name: ClassVar[str] = "gumbel_soft"
    label: ClassVar[str] = "Gumbel-Softmax (relaxed)"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = None
    surrogate: ClassVar[str] = "perturbed"
    backward: ClassVar = "tau"
    discrete: ClassVar[bool] = False
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
