"""Every estimator, with its closed form: the suite in this folder runs each row through the whole contract.

A new estimator is a file with its functions and its value, and one row here for each kind of choice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import contract.toy
import torch
from torch import Tensor

from decoupled_st.estimators import registered


def softmax_vjp(scores: Tensor, tau: Any, g: Tensor, dim: int) -> Tensor:
    """J' g for J = (diag(p) - p p') / tau, p = softmax(scores / tau), written out."""
    p = (scores / tau - (scores / tau).amax(dim, keepdim=True)).exp()
    p = p / p.sum(dim, keepdim=True)
    return p * (g - (p * g).sum(dim, keepdim=True)) / tau


def sigmoid_vjp(scores: Tensor, tau: Any, g: Tensor, dim: int) -> Tensor:
    p = 1 / (1 + (-scores / tau).exp())
    return p * (1 - p) * g / tau


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    temperatures: dict[str, float]
    vjp: Callable[..., Tensor]
    """(logits, noise, g, temperatures, dim) -> dL/dl in closed form."""
    sample_tau: Callable[[dict[str, Any]], Any] | None
    """The temperature the choice is drawn at; None where the argmax is taken."""
    backward: str | None = field(default=None)
    """The temperature of the surrogate, which may be learned."""
    normalised: bool = True
    """Whether the surrogate is a distribution: adding a constant to g changes nothing, a bad logit spoils its row."""
    fused: bool = True
    """Whether the kernels know it."""

    @property
    def categorical(self) -> bool:
        return self.kind == "categorical"

    @property
    def function(self) -> Callable[..., Tensor]:
        return registered(self.name).functions[self.kind]

    def __call__(self, logits: Tensor, **options: Any) -> Tensor:
        return self.function(logits, **{**self.temperatures, **options})

    def noise(self, shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        u = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp(1e-12)
        return (-(-u.log()).log() if self.categorical else u.log() - (-u).log1p()).to(dtype)


def _rows(kind: str, vjp: Callable[..., Tensor]) -> list[Case]:
    return [
        Case(
            "decoupled", kind, {"tau_f": 0.7, "tau_b": 0.4},
            lambda l, noise, g, t, dim: vjp(l, t["tau_b"], g, dim), lambda t: t["tau_f"], "tau_b",
        ),
        Case(
            "softmax_ste", kind, {"tau": 0.6},
            lambda l, noise, g, t, dim: vjp(l, t["tau"], g, dim), lambda t: t["tau"], "tau",
        ),
        Case(
            "gumbel_ste", kind, {"tau": 0.6},
            lambda l, noise, g, t, dim: vjp(l + noise, t["tau"], g, dim), lambda t: 1.0, "tau",
        ),
        Case("identity_ste", kind, {}, lambda l, noise, g, t, dim: g, None, normalised=False),
        Case(
            contract.toy.HalfIdentity.name, kind, {"tau": 0.6}, contract.toy.VJPS[kind], lambda t: t["tau"],
            normalised=False, fused=False,
        ),
    ]  # fmt: skip


CASES = _rows("categorical", softmax_vjp) + _rows("binary", sigmoid_vjp)
IDS = [f"{case.kind}.{case.name}" for case in CASES]
