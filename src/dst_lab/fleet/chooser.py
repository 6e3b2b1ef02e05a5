"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run temperatures, per-run noise."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.noise import gumbel_from_uniform, logistic_from_uniform
from dst_lab.fleet.streams import Source


def draw_and_surrogate(name: str, taus: Mapping[str, Tensor], runs: Tensor) -> tuple[Tensor, Tensor]:
    """The temperatures [runs] that an estimator's choice is drawn at and its gradient is taken at; `runs` is any tensor
    of that shape. Identity STE takes the argmax and has no surrogate."""
    if name == "decoupled":
        return taus["tau_f"], taus["tau_b"]
    if name == "identity_ste":
        return torch.zeros_like(runs), torch.ones_like(runs)
    return torch.ones_like(runs) if name == "gumbel_ste" else taus["tau"], taus["tau"]


class Chooser:
    """One forward pass's worth of choices, for logits with a leading run axis.

    Args:
        name: the estimator's.
        taus: its temperatures, [runs] each.
        source: of the draws; None takes the argmax everywhere.
    """

    def __init__(self, name: str, taus: Mapping[str, Tensor], source: Source | None) -> None:
        self.name, self.taus, self.source = name, taus, source

    def binary(self, logits: Tensor) -> Tensor:
        """0 or 1 for log-odds [runs, ...]."""
        return self._choose(dst.binary, logits, logistic_from_uniform)

    def categorical(self, logits: Tensor) -> Tensor:
        """One-hot along the last dim for logits [runs, ..., K]."""
        return self._choose(dst.categorical, logits, gumbel_from_uniform)

    def _choose(self, kind: object, logits: Tensor, to_noise: Callable[[Tensor], Tensor]) -> Tensor:
        taus = {name: tau.view(-1, *[1] * (logits.dim() - 1)) for name, tau in self.taus.items()}
        if self.source is None:
            if self.name == "identity_ste":
                return getattr(kind, self.name)(logits)
            return kind.decoupled(logits, tau_f=0.0, tau_b=taus.get("tau_b", taus.get("tau")))  # type: ignore[attr-defined]
        if self.name in ("identity_ste", "soft"):
            return getattr(kind, self.name)(logits, **taus)
        noise = to_noise(self.source.uniform(logits.shape[1:]))
        return getattr(kind, self.name)(logits, noise=noise, **taus)
