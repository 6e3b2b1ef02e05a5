"""Every estimator, with its closed form: the suite in this folder runs each row through the whole contract.

A new estimator is a file with its functions and its value, and one row here for each kind of choice.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import contract.toy
import pytest
import torch
from torch import Tensor

from decoupled_st.estimators import Estimator, registered


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
    options: dict[str, Any] = field(default_factory=dict)
    """Parameters that are no temperatures."""
    kept: int = 1
    """How many tensors of the logits' size are kept for backward."""

    @property
    def id(self) -> str:
        """The name a test has it under."""
        own = "".join(f"-{value}" for name, value in self.options.items() if name == "gap")
        return f"{self.kind}.{self.name}{own}"

    @property
    def categorical(self) -> bool:
        return self.kind == "categorical"

    @property
    def function(self) -> Callable[..., Tensor]:
        return registered(self.name).functions[self.kind]

    @property
    def value(self) -> Estimator:
        return registered(self.name)(**self.temperatures, **self.options)

    def __call__(self, logits: Tensor, **options: Any) -> Tensor:
        return self.function(logits, **{**self.temperatures, **self.options, **options})

    def noise(self, shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        u = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp(1e-12)
        return (-(-u.log()).log() if self.categorical else u.log() - (-u).log1p()).to(dtype)


def _drawn(kind: str, scores: Tensor, dim: int) -> Tensor:
    """What was drawn: a one-hot, or 0 and 1."""
    if kind == "binary":
        return (scores > 0).to(scores.dtype)
    return (scores == scores.amax(dim, keepdim=True)).to(scores.dtype)


def reinmax_vjp(kind: str) -> Callable[..., Tensor]:
    """[2 J(m) g - J(p_f) g / 2] / tau_f, written out with matrices of K x K."""

    def categorical(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
        D = _drawn(kind, l + t["tau_f"] * noise, dim)
        p_f, p_b = (l / t["tau_f"]).softmax(dim), (l / t["tau_b"]).softmax(dim)
        results = []
        for p in ((D + p_b) / 2, p_f):
            p = p.movedim(dim, -1)
            J = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
            results.append((J @ g.movedim(dim, -1).unsqueeze(-1)).squeeze(-1).movedim(-1, dim))
        return (2 * results[0] - results[1] / 2) / t["tau_f"]

    def binary(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
        D = _drawn(kind, l + t["tau_f"] * noise, dim)
        p, m = (l / t["tau_f"]).sigmoid(), (D + (l / t["tau_b"]).sigmoid()) / 2
        return (2 * m * (1 - m) - p * (1 - p) / 2) * g / t["tau_f"]

    return categorical if kind == "categorical" else binary


def sparsemax_vjp(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    """The Jacobian of the projection onto the simplex, its threshold found by bisection."""
    s = (l / t["tau_b"]).movedim(dim, -1)
    low, high = s.amax(-1, keepdim=True) - 1, s.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        above = (s - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    inside, g = (s > high).to(g.dtype), g.movedim(dim, -1)
    mean = (inside * g).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)
    return (inside * (g - mean)).movedim(-1, dim) / t["tau_b"]


def clipped_vjp(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    return g * (l.abs() <= t["tau_b"]) / (2 * t["tau_b"])


def gapped_scores(kind: str, l: Tensor, noise: Tensor, gap: float | str, dim: int) -> Tensor:
    """The logits moved so that what was drawn leads."""
    D = _drawn(kind, l + noise, dim)
    p = (l.softmax(dim) * D).sum(dim, keepdim=True) if kind == "categorical" else (l * (2 * D - 1)).sigmoid()
    lead = -torch.log1p(-p) / p if gap == "p" else torch.full_like(p, gap)
    if kind == "binary":
        return torch.where(D > 0, torch.maximum(l, lead), torch.minimum(l, -lead))
    top = l.amax(dim, keepdim=True)
    return torch.where(D > 0, top, torch.minimum(l, top - lead))


def _by(vjp: Callable[..., Tensor], tau: str, perturbed: bool = False) -> Callable[..., Tensor]:
    """The closed form of a surrogate of the logits, or of the perturbed ones, at the temperature of this name."""
    return lambda l, noise, g, t, dim: vjp(l + noise if perturbed else l, t[tau], g, dim)


def _gapped(kind: str, vjp: Callable[..., Tensor], gap: float | str) -> Case:
    def closed(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
        return vjp(gapped_scores(kind, l, noise, gap, dim), t["tau"], g, dim)

    return Case("gapped_ste", kind, TAU, closed, AT_1, "tau", fused=False, options={"gap": gap})


TAU, BOTH = {"tau": 0.6}, {"tau_f": 0.7, "tau_b": 0.4}
AT_1, AT_TAU, AT_TAU_F = (lambda t: 1.0), (lambda t: t["tau"]), (lambda t: t["tau_f"])


def _rows(kind: str, vjp: Callable[..., Tensor]) -> list[Case]:
    clean, perturbed = _by(vjp, "tau"), _by(vjp, "tau", perturbed=True)
    clipped = sparsemax_vjp if kind == "categorical" else clipped_vjp
    own, its_own = contract.toy.HalfIdentity.name, contract.toy.VJPS[kind]
    window = {"tau_f": 0.7, "tau_b": 0.9}
    return [
        Case("decoupled", kind, BOTH, _by(vjp, "tau_b"), AT_TAU_F, "tau_b"),
        Case("softmax_ste", kind, TAU, clean, AT_TAU, "tau"),
        Case("gumbel_ste", kind, TAU, perturbed, AT_1, "tau"),
        Case("reinmax", kind, BOTH, reinmax_vjp(kind), AT_TAU_F, kept=2 if kind == "categorical" else 1),
        Case("gumbel_rao", kind, TAU, perturbed, AT_1, "tau", fused=False, options={"samples": 1}),
        _gapped(kind, vjp, 1.0),
        _gapped(kind, vjp, "p"),
        Case("clipped_ste", kind, window, clipped, AT_TAU_F, "tau_b", fused=False, kept=0),
        Case("identity_ste", kind, {}, lambda l, noise, g, t, dim: g, None, normalised=False, fused=False),
        Case(own, kind, TAU, its_own, AT_TAU, normalised=False, fused=False),
    ]


def _relaxed(kind: str, vjp: Callable[..., Tensor]) -> list[Case]:
    """Those whose output is no choice: their gradient keeps the contract, their value has its own tests."""
    return [
        Case("soft", kind, TAU, _by(vjp, "tau"), None, "tau", fused=False),
        Case("gumbel_soft", kind, TAU, _by(vjp, "tau", perturbed=True), None, "tau", fused=False),
    ]


CASES = _rows("categorical", softmax_vjp) + _rows("binary", sigmoid_vjp)
RELAXED = _relaxed("categorical", softmax_vjp) + _relaxed("binary", sigmoid_vjp)


def each(cases: list[Case], quick: Collection[str] = ()) -> Any:
    """A fixture of these cases; where some are quick, the others are slow."""
    marks = [[pytest.mark.slow] if quick and case.id not in quick else [] for case in cases]

    @pytest.fixture(params=[pytest.param(c, id=c.id, marks=m) for c, m in zip(cases, marks, strict=True)])
    def one(request: pytest.FixtureRequest) -> Case:
        return request.param

    return one
