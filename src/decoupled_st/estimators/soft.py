"""The relaxation with no discrete step: a reference, not an estimator."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows, surrogate
from decoupled_st.estimators.operations.noise import check_source
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.soft")
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
    """The relaxation with no discrete step, `softmax(l / tau)`: a reference, not an estimator.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        dim, mask, grad_scale: see `decoupled_st.categorical`.
    """
    dim = rows.check_categories(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    row = rows.centred(rows.allowed(logits, mask), dim)
    l = rows.filled(row.l, row.empty)
    p = torch.softmax((l / tau).detach(), dim)
    if row.empty is not None:
        p = p.masked_fill(row.empty, 0.0)
    if not wanted(logits, tau):
        return p.to(logits.dtype)
    return surrogate.softmax(p, l, row.largest, dim, tau, scale, logits.dtype)


@exported("decoupled_st.binary.soft")
def binary(
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
        grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = to_compute(logits, logits)
    p = torch.sigmoid((l / tau).detach())
    if not wanted(logits, tau):
        return p.to(logits.dtype)
    return surrogate.sigmoid(p, l, tau, scale, logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class Soft(Estimator):
    """The relaxation with no discrete step, as a reference; under `deterministic()` the argmax is taken."""

    name: ClassVar[str] = "soft"
    label: ClassVar[str] = "Soft (reference)"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = None
    surrogate: ClassVar[str] = "clean"
    backward: ClassVar = "tau"
    discrete: ClassVar[bool] = False
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
