"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run temperatures, per-run noise."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.noise import gumbel_from_uniform, logistic_from_uniform

Uniform = Callable[[int, Sequence[int]], Tensor]


class Chooser:
    """One forward pass's worth of choices, for logits with a leading run axis.

    Args:
        name: the estimator's.
        taus: its temperatures, [runs] each.
        uniform: (site, shape) -> [runs, *shape] uniform draws; None takes the argmax everywhere.
    """

    def __init__(self, name: str, taus: Mapping[str, Tensor], uniform: Uniform | None) -> None:
        self.name, self.taus, self.uniform = name, taus, uniform
        self._site = 0

    def binary(self, logits: Tensor) -> Tensor:
        """0 or 1 for log-odds [runs, ...]."""
        return self._choose(dst.binary, logits, logistic_from_uniform)

    def categorical(self, logits: Tensor) -> Tensor:
        """One-hot along the last dim for logits [runs, ..., K]."""
        return self._choose(dst.categorical, logits, gumbel_from_uniform)

    def _choose(self, kind: object, logits: Tensor, to_noise: Callable[[Tensor], Tensor]) -> Tensor:
        taus = {name: tau.view(-1, *[1] * (logits.dim() - 1)) for name, tau in self.taus.items()}
        if self.uniform is None:
            if self.name == "identity_ste":
                return getattr(kind, self.name)(logits)
            return kind.decoupled(logits, tau_f=0.0, tau_b=taus.get("tau_b", taus.get("tau")))  # type: ignore[attr-defined]
        if self.name in ("identity_ste", "soft"):
            return getattr(kind, self.name)(logits, **taus)
        noise = to_noise(self.uniform(self._site, logits.shape[1:]))
        self._site += 1
        return getattr(kind, self.name)(logits, noise=noise, **taus)
