"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run temperatures, per-run noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.noise import gumbel_from_uniform, logistic_from_uniform
from dst_lab.fleet.streams import Source


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
        return self._choose("binary", logits, logistic_from_uniform)

    def categorical(self, logits: Tensor) -> Tensor:
        """One-hot along the last dim for logits [runs, ..., K]."""
        return self._choose("categorical", logits, gumbel_from_uniform)

    def _choose(self, kind: str, logits: Tensor, to_noise: Callable[[Tensor], Tensor]) -> Tensor:
        if logits.is_cuda and self.name != "soft":
            return self._fused(kind, logits)
        estimators = getattr(dst, kind)
        taus = {name: tau.view(-1, *[1] * (logits.dim() - 1)) for name, tau in self.taus.items()}
        if self.source is None:
            if self.name == "identity_ste":
                return estimators.identity_ste(logits)
            return estimators.decoupled(logits, tau_f=0.0, tau_b=taus.get("tau_b", taus.get("tau")))
        estimator = getattr(estimators, self.name)
        if self.name in ("identity_ste", "soft"):
            return estimator(logits, **taus)
        return estimator(logits, noise=to_noise(self.source.uniform(logits.shape[1:])), **taus)

    def _fused(self, kind: str, logits: Tensor) -> Tensor:
        from dst_lab.fleet.cuda.choose import choose

        draws = Draws.of(self, logits.detach().flatten(1)[:, 0])
        estimator = self.name
        if self.source is None:
            estimator = "identity_ste" if self.name == "identity_ste" else "decoupled"
        else:
            self.source.site += 1
        return choose(logits, draws, estimator, kind)


@dataclass(frozen=True)
class Draws:
    """Where a pass's random numbers come from, and two temperatures a run: of the draw and of the surrogate."""

    drawn: Tensor
    surrogate: Tensor
    key: Tensor
    step: Tensor
    use: int
    site: int

    @classmethod
    def of(cls, chooser: Chooser, runs: Tensor) -> "Draws":
        """A chooser's, from its present site on; `runs` is any tensor [runs]. Without a source: the argmax."""
        drawn, surrogate = draw_and_surrogate(chooser.name, chooser.taus, runs)
        source = chooser.source
        if source is None:
            nothing = torch.zeros_like(runs, dtype=torch.int64)
            return cls(torch.zeros_like(runs), surrogate, nothing, nothing[0], 0, 0)
        step = torch.as_tensor(source.step, device=runs.device)
        return cls(drawn, surrogate, source.streams.key_of_run, step, int(source.use), source.site)


def draw_and_surrogate(name: str, taus: Mapping[str, Tensor], runs: Tensor) -> tuple[Tensor, Tensor]:
    """The temperatures [runs] of an estimator's draw and of its surrogate (Identity STE: the argmax, and none)."""
    if name == "decoupled":
        return taus["tau_f"], taus["tau_b"]
    if name == "identity_ste":
        return torch.zeros_like(runs), torch.ones_like(runs)
    return torch.ones_like(runs) if name == "gumbel_ste" else taus["tau"], taus["tau"]
