"""Softmax STE: sample and gradient at one temperature."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators import decoupled
from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.straight_through import check_logits
from decoupled_st.estimators.operations.temperature import Temperature, check
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.softmax_ste")
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
    """Softmax STE: sample and gradient at one temperature, `decoupled` on its diagonal.

        forward     z ~ Categorical(p),                     p = softmax(l / tau)
        backward    dL/dl = (diag(p) - p p') dL/dz / tau

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Hinton: Neural networks for machine learning, lecture 15d, 2012.
    """
    tau = check("tau", tau, logits, rows.check_categories(logits, dim, mask))
    return decoupled.categorical(
        logits, tau_f=tau, tau_b=tau, dim=dim, mask=mask, generator=generator, noise=noise, grad_scale=grad_scale
    )


@exported("decoupled_st.binary.softmax_ste")
def binary(
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
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    return decoupled.binary(logits, tau_f=tau, tau_b=tau, generator=generator, noise=noise, grad_scale=grad_scale)


@register
@dataclass(frozen=True, kw_only=True)
class SoftmaxSTE(Estimator):
    """Softmax STE: sample and gradient at one temperature."""

    name: ClassVar[str] = "softmax_ste"
    label: ClassVar[str] = "Softmax STE"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = "tau"
    surrogate: ClassVar[str] = "clean"
    backward: ClassVar = "tau"
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
