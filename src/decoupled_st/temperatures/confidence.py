"""Backward temperatures row by row, from how sure each choice is."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from decoupled_st.estimators.contract import check_float, to_compute
from decoupled_st.temperatures.registry import register
from decoupled_st.temperatures.rule import Rule, State, Taus, View


@register
@dataclass(frozen=True, kw_only=True)
class Confidence(Rule):
    """tau_b of each row from the confidence of its choice, tau_f constant: nothing is remembered.

        tau_b = low + (high - low) * c,    c = (max p - 1/K) / (1 - 1/K),    p = softmax(l / low)

    A row that hesitates has the sharp gradient of `low`; a sure one has `high`, so that its gradient does not die.
    In `nn.Codebook` all rows have the mean over some of them.
    The idea is that of CAGE; its equations may differ. It is a baseline for `SelfTempered`, not advice.

    Args:
        tau_f: forward temperature, >= 0; 0 takes the argmax.
        low, high: backward temperatures of a row without preference and of a certain one.

    Reference:
        Kim: Align forward, adapt backward: closing the discretization gap in logic gate networks, 2026.
    """

    name: ClassVar[str] = "confidence"
    tau_f: float = 0.0
    low: float = 0.5
    high: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = check_float(field.name, getattr(self, field.name), zero=field.name == "tau_f")
            object.__setattr__(self, field.name, value)

    @property
    def takes_argmax(self) -> bool:
        return self.tau_f == 0

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        return {}

    def observe(self, state: State, view: View) -> State:
        return {}

    def temperatures(self, state: State, view: View) -> Taus:
        l = to_compute(view.masked(-torch.inf), view.logits) / self.low
        if view.dim is None:
            confidence = torch.tanh(l.abs() / 2)  # 2 max(p, 1 - p) - 1
        else:
            allowed = (l > -torch.inf).sum(view.dim, keepdim=True).clamp(min=2).to(l.dtype)
            most = torch.softmax(l, view.dim).amax(view.dim, keepdim=True)
            confidence = (most - 1 / allowed) / (1 - 1 / allowed)
        confidence = torch.nan_to_num(confidence, nan=0.0).clamp(0.0, 1.0)
        tau_f = torch.full_like(view.spread(confidence.new_zeros(confidence.shape[: view.run_dims])), self.tau_f)
        return Taus(tau_f, self.low + (self.high - self.low) * confidence)
