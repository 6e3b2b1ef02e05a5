"""The gapped straight-through estimator: the gradient at logits where the drawn category leads by a gap."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows, surrogate
from decoupled_st.estimators.operations.noise import check_source, gumbel, logistic
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale, is_number
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register


@exported("decoupled_st.categorical.gapped_ste")
def categorical(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    gap: float | str = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Gapped ST: sample at temperature 1, gradient at logits moved so that the drawn category leads.

        forward     D ~ Categorical(softmax(l))
        backward    dL/dl = (diag(p) - p p') dL/dz / tau,   p = softmax(l' / tau)
                    l'_D = max l,   l'_i = min(l_i, max l - gap) for the others

    What the draw of `gumbel_ste` does to its surrogate, without the noise: the drawn category is the largest, with a
    lead. `gap="p"` takes the mean lead that Gumbel noise gives a category which was drawn, -log(1 - p_D) / p_D.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature of the surrogate, > 0.
        gap: the lead, >= 0, or "p".
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Fan, Chi, Rudnicky, Ramadge: Training discrete deep generative models via gapped straight-through estimator,
        2022.
    """
    dim = rows.check_categories(logits, dim, mask)
    tau = check("tau", tau, logits, dim)
    gap = check_gap("gap", gap)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = rows.allowed(logits, mask)
    row = rows.centred(l, dim)
    scores = (row.l + gumbel(l, generator, noise)).detach()
    hard, drawn = rows.one_hot(scores, dim, finite=row.empty is None and noise is None)
    if not wanted(logits, tau):
        return hard.to(logits.dtype)
    filled = rows.filled(row.l, row.empty)
    fixed = filled.detach()
    lead: float | Tensor = gap if isinstance(gap, float) else _mean_lead(fixed, drawn, dim)
    moved = fixed.clamp(max=-lead).scatter(dim, drawn, torch.zeros_like(drawn, dtype=fixed.dtype))
    moved = rows.filled(moved, row.empty)
    return surrogate.softmax(hard, rows.shifted(filled, moved), drawn, dim, tau, scale, logits.dtype)


@exported("decoupled_st.binary.gapped_ste")
def binary(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    gap: float | str = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Gapped ST of two categories: the gradient at log-odds moved so that what was drawn leads by the gap.

        forward     P(D = 1) = sigmoid(l)
        backward    dL/dl = p (1 - p) dL/dz / tau,   p = sigmoid(l' / tau)
                    l' = max(l, gap) where D = 1,   min(l, -gap) where D = 0

    Args:
        logits: log-odds, any shape.
        tau: temperature of the surrogate, > 0.
        gap: the lead, >= 0, or "p": -log(1 - p_D) / p_D.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau = check("tau", tau, logits)
    gap = check_gap("gap", gap)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = to_compute(logits, logits)
    hard = rows.threshold((l + logistic(l, generator, noise)).detach())
    if not wanted(logits, tau):
        return hard.to(logits.dtype)
    side = 2 * hard - 1
    lead = l.detach() * side  # above 0 where the likelier of the two was drawn
    if isinstance(gap, float):
        lead = lead.clamp(min=gap)
    else:
        held = lead.clamp(min=-80.0)  # the quotient is 1 there, and later 0 / 0
        lead = torch.maximum(lead, torch.nn.functional.softplus(held) / torch.sigmoid(held))
    return surrogate.sigmoid(hard, rows.shifted(l, lead * side), tau, scale, logits.dtype)


def check_gap(name: str, value: Any) -> float | str:
    """A lead that is finite and at least 0, or "p"."""
    if isinstance(value, str) and value == "p":
        return value
    if not is_number(value):
        raise TypeError(f'{name} must be a number or "p", got {name}={value!r}')
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {name}={float(value)}")
    return float(value)


def _mean_lead(l: Tensor, drawn: Tensor, dim: int) -> Tensor:
    """-log(1 - p_D) / p_D; infinite where there is nothing else to draw."""
    total = torch.logsumexp(l, dim, keepdim=True)
    others = l.scatter(dim, drawn, torch.full_like(drawn, -math.inf, dtype=l.dtype))
    own = (l.gather(dim, drawn) - total).exp().clamp(min=1e-30)  # the quotient is 1 there, and later 0 / 0
    # Of log(1 - p_D) the form that rounding leaves alone: 1 - p_D itself is 0 once p_D rounds to 1.
    rest = torch.logsumexp(others, dim, keepdim=True) - total
    return -torch.where(own < 0.5, torch.log1p(-own), rest) / own


@register
@dataclass(frozen=True, kw_only=True)
class GappedSTE(Estimator):
    """Gapped ST: sample at temperature 1, gradient at logits moved so that the drawn category leads by a gap."""

    name: ClassVar[str] = "gapped_ste"
    label: ClassVar[str] = "Gapped ST"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "gapped"
    backward: ClassVar = "tau"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
    gap: float | str = field(default=1.0, metadata={"check": check_gap, "words": ("p",)})

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)
