"""The rule that sets both temperatures from what it measures, with one set of constants for all networks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.temperature import check_float
from decoupled_st.temperatures import numbers
from decoupled_st.temperatures.observe import View, scale, usage
from decoupled_st.temperatures.rule import Numbers, Rule, State, Taus, register
from decoupled_st.temperatures.schedule import check_steps

SETTLED, EVERY = 50, 8
"""Passes: up to the first all are measured, after it every eighth, which counts as eight."""


@register
@dataclass(frozen=True, kw_only=True)
class SelfTempered(Rule):
    """No temperature to tune: tau_b follows the scale of the logits, tau_f falls as the choices come into use.

        tau_b = max(share * s, s_0)                       s  root mean square of the layer's centred logits
                                                        s_0  that of the first pass, but at least
                                                             floor * sqrt(log2 K) and at most `ceiling`
        tau_f = q + (high - q) * w * max(0, 1 - m/enough) q  low * s_0, a quiet draw
                                                          m  how evenly the argmax categories are in use, 0 to 1
                                                          w  1 for a layer of few bits, 0 for one of many

    s is a mean over about the last 50 passes, m over the last `window`; of the passes after the 50th every eighth is
    measured. Where `steps` is known, the factor of m is
    replaced by a straight line from 1 to 0 over nine tenths of it. w is 1 up to `few_bits` bits per sample, 0 from
    twice as many on, and 0 where there is no batch to measure: logits that are parameters, or one sample per pass.

    Args:
        steps: how many training steps there will be, if that is known.
        low, high: between these tau_f moves; `low` is a share of s_0.
        share, floor, ceiling: of tau_b; `floor` is that of binary neurons, for which K is 2.
        few_bits: what few means: latents times log2 of the categories.
        enough: the usage at which tau_f has come down.
        window: passes.

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
    floor: float = 0.3
    ceiling: float = 1.0
    few_bits: float = 16.0
    enough: float = 0.8
    window: float = 200.0
    fall: float = 0.9
    collapsed: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            zero = field.name in ("low", "high", "share", "collapsed")
            object.__setattr__(self, field.name, check_float(field.name, getattr(self, field.name), zero=zero))
        for most, least in (("high", "low"), ("ceiling", "floor")):
            if getattr(self, most) < getattr(self, least):
                given = f"{most}={getattr(self, most)} and {least}={getattr(self, least)}"
                raise ValueError(f"{most} must be at least {least}, got {given}")
        if self.steps is not None:
            check_steps(self.steps)

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        whole = {name: torch.zeros(tuple(runs), dtype=torch.int64, device=device) for name in ("passes", "usages")}
        real = {
            name: torch.zeros(tuple(runs), dtype=torch.float32, device=device) for name in ("first", "scale", "usage")
        }
        return {**whole, **real}

    def observe(self, state: State, view: View) -> State:
        passes = state["passes"] + 1
        settled = passes > SETTLED
        measured, weight = ~settled | (passes % EVERY == 0), torch.where(settled, float(EVERY), 1.0)
        s, known = scale(view)
        known = known & measured
        after = {
            **state,
            "passes": passes,
            "first": torch.where((state["first"] == 0) & known, s, state["first"]),
            "scale": _towards(state["scale"], s, known, torch.maximum(1 / passes, weight / SETTLED)),
        }
        if self._enough and self._few(view) > 0:
            m, known = usage(view)
            known = known & measured
            usages = after["usages"] = state["usages"] + known
            rate = torch.maximum(1 / usages.clamp(min=1), weight / self.window).clamp(max=1.0)
            after["usage"] = _towards(state["usage"], m, known, rate)
        return after

    def temperatures(self, state: State, view: View) -> Taus:
        least = state["first"].clamp(*self._least(view))
        tau_b = torch.maximum(self.share * state["scale"], least)
        quiet, few = self.low * least, self._few(view)
        if few == 0:
            return Taus(view.spread(quiet), view.spread(tau_b))
        left = torch.zeros_like(least)
        if self.steps:
            left = (1 - state["passes"] / (self.fall * self.steps)).clamp(min=0.0)
        if self._enough:
            left = torch.where(state["usages"] > 0, torch.maximum(left, 1 - state["usage"] / self._enough), left)
        return Taus(view.spread(quiet + (self.high - quiet) * (few * left)), view.spread(tau_b))

    def step(self, state: State, view: View) -> tuple[Taus, State]:
        if not self._can_run_fused(state, view):
            return super().step(state, view)
        after = {name: torch.empty_like(value) for name, value in state.items()}
        return self._fused(state, view, after), after

    @torch.no_grad()
    def advance(self, state: State, view: View) -> Taus | Numbers:
        if numbers.can_measure(view):
            return self._numbers(state, view)
        if self._can_run_fused(state, view) and all(value.is_contiguous() for value in state.values()):
            return self._fused(state, view, state)
        return super().advance(state, view)

    def _can_run_fused(self, state: State, view: View) -> bool:
        fits = view.mask is None and view.dim in (None, -1) and view.categories <= 4096
        return fits and kernels.can_run_fused(view.logits, 1.0, *state.values()) and not kernels.is_watched()

    def _fused(self, state: State, view: View, after: State) -> Taus:
        """One pass by the kernel, which writes the state after it into `after`."""
        from decoupled_st.kernels.temperatures import step

        tau_f, tau_b = step(
            view.logits,
            state,
            after,
            binary=view.dim is None,
            run_dims=view.run_dims,
            samples=view.samples,
            stride=view.stride,
            few=self._few(view),
            low=self.low,
            high=self.high,
            enough=self._enough,
            window=self.window,
            share=self.share,
            least=self._least(view),
            over=self.fall * self.steps if self.steps else 0.0,
            settled=SETTLED,
            every=EVERY,
        )
        return Taus(view.spread(tau_f), view.spread(tau_b))

    def _numbers(self, state: State, view: View) -> Numbers:
        """One pass of one network on a CPU: what the functions above say, in Python's numbers."""
        before = {name: value.item() for name, value in state.items()}
        floor, ceiling = self._least(view)
        least = min(max(before["first"], floor), ceiling)
        quiet, few, left = self.low * least, self._few(view), 0.0
        if few and self.steps:
            left = max(1 - before["passes"] / (self.fall * self.steps), 0.0)
        if few and self._enough and before["usages"]:
            left = max(left, 1 - before["usage"] / self._enough)
        passes = before["passes"] + 1
        state["passes"].fill_(passes)
        if passes <= SETTLED or passes % EVERY == 0:
            weight = EVERY if passes > SETTLED else 1
            if (s := numbers.scale(view)) > 0:
                rate = max(1 / passes, weight / SETTLED)
                state["scale"].fill_(before["scale"] + rate * (s - before["scale"]))
                if not before["first"]:
                    state["first"].fill_(s)
            if few and self._enough and (m := numbers.usage(view)) is not None:
                usages = before["usages"] + 1
                rate = min(max(1 / usages, weight / self.window), 1.0)
                state["usages"].fill_(usages)
                state["usage"].fill_(before["usage"] + rate * (m - before["usage"]))
        return Numbers(quiet + (self.high - quiet) * (few * left), max(self.share * before["scale"], least))

    @property
    def _enough(self) -> float:
        """The usage below which tau_f is raised; 0 where usage is not measured."""
        return self.collapsed if self.steps else self.enough

    def _least(self, view: View) -> tuple[float, float]:
        """Between which the least tau_b lies: a choice among more categories has a warmer floor."""
        floor = self.floor * math.sqrt(math.log2(max(view.categories, 2)))
        return floor, max(self.ceiling, floor)

    def _few(self, view: View) -> float:
        """From 1, few bits, to 0, many, or logits that are parameters."""
        return min(max(2 - view.bits / self.few_bits, 0.0), 1.0) if view.batch_dims else 0.0


def _towards(mean: Tensor, value: Tensor, known: Tensor, rate: Tensor) -> Tensor:
    """A running mean, moved by `rate` where the value is known."""
    return torch.where(known, mean + rate * (value - mean), mean)
