"""An estimator from outside the library: this file is all there is of it, and the suite takes it like any other.

A draw at temperature tau whose surrogate is half the identity, and the whole of it for the category that was drawn.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.noise import check_source, gumbel, logistic
from decoupled_st.estimators.operations.straight_through import check_logits, emit, to_compute
from decoupled_st.estimators.operations.temperature import Temperature, check, check_scale, temper
from decoupled_st.estimators.spec import TEMPERATURE


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
    dim = rows.check_categories(logits, dim, mask)
    tau, scale = check("tau", tau, logits, dim), check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = rows.allowed(logits, mask)
    scores = rows.perturbed(rows.centred(l, dim).l.detach(), tau, gumbel(l, generator, noise))
    hard, _ = rows.one_hot(scores.detach(), dim)
    return emit(hard, *_half(l, hard, scale), logits.dtype)


def binary(
    logits: Tensor,
    *,
    tau: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    check_logits(logits)
    tau, scale = check("tau", tau, logits), check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    l = to_compute(logits, logits)
    hard = rows.threshold(rows.perturbed(l.detach(), tau, logistic(l, generator, noise)).detach())
    return emit(hard, *_half(l, hard, scale), logits.dtype)


def _half(l: Tensor, hard: Tensor, scale: float | Tensor) -> tuple[Tensor, float]:
    finite, gain = temper(l.masked_fill(l.isinf(), 0.0), 1.0, scale)
    return finite * ((1 + hard) / 2), gain


@dst.estimators.register
@dataclass(frozen=True, kw_only=True)
class HalfIdentity(dst.Estimator):
    name: ClassVar[str] = "half_identity"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> dst.Estimator:
        return dst.IdentitySTE()


def _vjp_categorical(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    scores = l + t["tau"] * noise
    return g * (1 + (scores == scores.amax(dim, keepdim=True)).to(g.dtype)) / 2


def _vjp_binary(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    return g * (1 + (l + t["tau"] * noise > 0).to(g.dtype)) / 2


VJPS = {"categorical": _vjp_categorical, "binary": _vjp_binary}
