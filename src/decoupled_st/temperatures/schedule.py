"""Schedules: temperatures that depend on the step alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import torch
from torch import Tensor

from decoupled_st.estimators.contract import check_count, check_float
from decoupled_st.temperatures.registry import register
from decoupled_st.temperatures.rule import Rule, State, Taus, View

SHAPES = ("linear", "cosine", "exponential")


@dataclass(frozen=True)
class Schedule:
    """A temperature that moves from `start` to `end` during the first `steps` steps, and stays there.

        linear       start + (end - start) t
        cosine       end + (start - end) (1 + cos(pi t)) / 2
        exponential  start (end / start)^t                        with t = min(step / steps, 1)

    Args:
        start, end: temperatures, at least 0; above 0 for an exponential schedule.
        steps: how many steps the way takes, at least 1.
        shape: "linear", "cosine" or "exponential".

    Example:
        >>> fall = Schedule(4.0, 0.1, steps=900)
        >>> [round(fall.at(step), 3) for step in (0, 450, 900, 5000)]
        [4.0, 2.05, 0.1, 0.1]
    """

    start: float
    end: float
    steps: int
    shape: str = "linear"

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            object.__setattr__(self, name, check_float(name, getattr(self, name), zero=True))
        if self.shape not in SHAPES:
            raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {self.shape!r}")
        if self.shape == "exponential" and 0 in (self.start, self.end):
            raise ValueError(f"an exponential schedule cannot begin or end at 0, got {self.start} and {self.end}")
        object.__setattr__(self, "steps", check_count("steps", self.steps))

    @overload
    def at(self, step: int | float) -> float: ...
    @overload
    def at(self, step: Tensor) -> Tensor: ...
    def at(self, step: int | float | Tensor) -> float | Tensor:
        """The temperature at a step: a float for a number, a float32 tensor for a tensor of steps."""
        t: float | Tensor
        cosine: float | Tensor
        if isinstance(step, Tensor):
            t = (step.float() / self.steps).clamp(0.0, 1.0)
            cosine = torch.cos(math.pi * t)
        else:
            t = min(max(step / self.steps, 0.0), 1.0)
            cosine = math.cos(math.pi * t)
        if self.shape == "cosine":
            return self.end + (self.start - self.end) * (1 + cosine) / 2
        if self.shape == "exponential":
            return self.start * (self.end / self.start) ** t
        return self.start * (1 - t) + self.end * t


@register
@dataclass(frozen=True, kw_only=True)
class Scheduled(Rule):
    """Each temperature a constant or a `Schedule`; the state is the number of steps so far.

    Example:
        >>> rule = Scheduled(tau_f=Schedule(4.0, 0.1, steps=900), tau_b=1.0)
        >>> state = rule.start()
        >>> logits = torch.zeros(2, 3)
        >>> for step in range(451):
        ...     taus, state = rule(state, logits)
        >>> round(taus.f.item(), 3), taus.b.item()
        (2.05, 1.0)
    """

    name: ClassVar[str] = "scheduled"
    tau_f: float | Schedule
    tau_b: float | Schedule

    def __post_init__(self) -> None:
        for name in ("tau_f", "tau_b"):
            value, zero = getattr(self, name), name == "tau_f"
            if isinstance(value, dict):
                value = Schedule(**value)
            if not isinstance(value, Schedule):
                value = check_float(name, value, zero=zero)
            elif not zero and 0 in (value.start, value.end):
                raise ValueError(f"{name} must stay above 0, got {value}")
            object.__setattr__(self, name, value)

    @property
    def takes_argmax(self) -> bool:
        return 0 in ((self.tau_f.start, self.tau_f.end) if isinstance(self.tau_f, Schedule) else (self.tau_f,))

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        return {"steps": torch.zeros(tuple(runs), dtype=torch.int64, device=device)}

    def observe(self, state: State, view: View) -> State:
        return {"steps": state["steps"] + 1}

    def temperatures(self, state: State, view: View) -> Taus:
        steps = state["steps"]
        f, b = (
            tau.at(steps) if isinstance(tau, Schedule) else torch.full_like(steps, tau, dtype=torch.float32)
            for tau in (self.tau_f, self.tau_b)
        )
        return Taus(view.spread(f), view.spread(b))
