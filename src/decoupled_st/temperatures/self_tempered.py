"""The rule that sets both temperatures from what it measures, with one set of constants for all networks."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.temperature import check_float
from decoupled_st.temperatures.observe import View, scale, usage
from decoupled_st.temperatures.rule import Rule, State, Taus, register
from decoupled_st.temperatures.schedule import check_steps


@register
@dataclass(frozen=True, kw_only=True)
class SelfTempered(Rule):
    """No temperature to tune: tau_b follows the scale of the logits, tau_f falls as the choices come into use.

        tau_b = max(floor, share * s)                      s   the root mean square of the layer's centred logits
        tau_f = low + (high - low) * w * (1 - m)           m   how evenly the argmax categories are in use
                                                           w   1 for a layer of few bits, 0 for one of many

    s is a mean over about the last 50 passes. m is a mean over all of training so far, so that tau_f falls no faster
    than training goes on, however long that is. Where `steps` is known, 1 - m is replaced by a straight line from 1 to
    0 over nine tenths of it. w is 1 up to `few_bits` bits per sample, 0 from twice as many on, and 0 where there is no
    batch to measure: one sample per pass, or logits that are parameters.

    Args:
        steps: how many training steps there will be, if that is known.
        low, high: between these tau_f moves.
        share, floor: of tau_b; `share` is of the logits' scale.
        few_bits: see above.

    Example:
        >>> import torch, decoupled_st as dst
        >>> choice = dst.nn.Categorical(dst.SelfTempered())
        >>> choice(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    name: ClassVar[str] = "self"
    steps: int | None = None
    low: float = 0.1
    high: float = 4.0
    share: float = 0.125
    floor: float = 0.5
    few_bits: float = 16.0

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            zero = field.name in ("low", "high", "share")
            object.__setattr__(self, field.name, check_float(field.name, getattr(self, field.name), zero=zero))
        if self.high < self.low:
            raise ValueError(f"high must be at least low, got high={self.high} and low={self.low}")
        if self.steps is not None:
            check_steps(self.steps)

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        whole = {name: torch.zeros(tuple(runs), dtype=torch.int64, device=device) for name in ("passes", "usages")}
        means = {name: torch.zeros(tuple(runs), dtype=torch.float32, device=device) for name in ("scale", "usage")}
        return {**whole, **means}

    def observe(self, state: State, view: View) -> State:
        passes = state["passes"] + 1
        s, known = scale(view)
        after = {**state, "passes": passes, "scale": _towards(state["scale"], s, known, 1 / passes.clamp(max=50))}
        if self.steps is None and self._few(view) > 0:
            m, known = usage(view)
            after["usages"] = state["usages"] + known
            after["usage"] = _towards(state["usage"], m, known, 1 / after["usages"].clamp(min=1))
        return after

    def temperatures(self, state: State, view: View) -> Taus:
        tau_b = (self.share * state["scale"]).clamp(min=self.floor)
        few = self._few(view)
        if few == 0:
            return Taus(view.spread(torch.full_like(tau_b, self.low)), view.spread(tau_b))
        if self.steps is None:
            left = torch.where(state["usages"] > 0, 1 - state["usage"], 0.0)
        else:
            left = (1 - state["passes"] / (0.9 * self.steps)).clamp(min=0.0)
        return Taus(view.spread(self.low + (self.high - self.low) * few * left), view.spread(tau_b))

    def _few(self, view: View) -> float:
        """From 1, few bits, to 0, many, or logits that are parameters."""
        return min(max(2 - view.bits / self.few_bits, 0.0), 1.0) if view.batch_dims else 0.0


def _towards(mean: Tensor, value: Tensor, known: Tensor, rate: Tensor) -> Tensor:
    """A running mean, moved by `rate` where the value is known."""
    return torch.where(known, mean + rate * (value - mean), mean)
