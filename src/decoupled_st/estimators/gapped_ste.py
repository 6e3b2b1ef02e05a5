"""The gapped straight-through estimator: the gradient at logits where the drawn category leads by a gap."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators import surrogate
from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.contract import is_number
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.gapped_ste")
def categorical(
    logits: Tensor, *, tau: Temperature = 1.0, gap: float | str = 1.0, **options: "Unpack[CategoricalOptions]"
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
    return run(Call.categorical(logits, **options), tau, gap)


@exported("decoupled_st.binary.gapped_ste")
def binary(
    logits: Tensor, *, tau: Temperature = 1.0, gap: float | str = 1.0, **options: "Unpack[BinaryOptions]"
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
    return run(Call.binary(logits, **options), tau, gap)


def run(call: Call, tau: Temperature, gap: float | str) -> Tensor:
    return call.run(define, call.tau("tau", tau), check_gap("gap", gap))


def define(call: Call, tau: Temperature, gap: float | str) -> Tensor:
    hard, drawn = call.choose(call.scores(1.0))
    if not call.trained:
        return hard.to(call.logits.dtype)
    l = call.filled(call.l)
    if call.dim is None or drawn is None:
        moved = _moved_log_odds(l, 2 * hard - 1, gap)
    else:
        lead = gap if isinstance(gap, float) else _mean_lead(l, drawn, call.dim)
        moved = l.clamp(max=-lead).scatter(call.dim, drawn, torch.zeros_like(drawn, dtype=l.dtype))
    return call.result(hard, tau, surrogate.shifted(l, moved), drawn)


def _moved_log_odds(l: Tensor, side: Tensor, gap: float | str) -> Tensor:
    """The log-odds l', where `side` is 1 or -1 for what was drawn."""
    lead = l * side  # above 0 where the likelier of the two was drawn
    if isinstance(gap, float):
        return lead.clamp(min=gap) * side
    held = lead.clamp(min=-80.0)  # the quotient is 1 there, and later 0 / 0
    return torch.maximum(lead, torch.nn.functional.softplus(held) / torch.sigmoid(held)) * side


def _mean_lead(l: Tensor, drawn: Tensor, dim: int) -> Tensor:
    """-log(1 - p_D) / p_D; infinite where there is nothing else to draw."""
    total = torch.logsumexp(l, dim, keepdim=True)
    others = l.scatter(dim, drawn, torch.full_like(drawn, -math.inf, dtype=l.dtype))
    own = (l.gather(dim, drawn) - total).exp().clamp(min=1e-30)  # the quotient is 1 there, and later 0 / 0
    # The form of log(1 - p_D) that rounding leaves alone: 1 - p_D itself is 0 once p_D rounds to 1.
    rest = torch.logsumexp(others, dim, keepdim=True) - total
    return -torch.where(own < 0.5, torch.log1p(-own), rest) / own


def check_gap(name: str, value: Any) -> float | str:
    """A lead that is finite and at least 0, or "p"."""
    if isinstance(value, str) and value == "p":
        return value
    if not is_number(value):
        raise TypeError(f'{name} must be a number or "p", got {name}={value!r}')
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {name}={float(value)}")
    return float(value)


@register
@dataclass(frozen=True, kw_only=True)
class GappedSTE(Estimator):
    """Gapped ST: sample at temperature 1, gradient at logits moved so that the drawn category leads by a gap."""

    name: ClassVar[str] = "gapped_ste"
    label: ClassVar[str] = "Gapped ST"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "gapped"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
    gap: float | str = field(default=1.0, metadata={"check": check_gap, "words": ("p",)})
