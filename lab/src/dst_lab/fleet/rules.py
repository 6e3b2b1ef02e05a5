"""Rules that set a fleet's temperatures: one state per rule and place where choices are made, with a run axis.

Only passes of training change a state, in place, so that a captured CUDA graph carries it on; what evaluates reads it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from decoupled_st import temperatures
from decoupled_st.temperatures import Rule, State, View
from dst_lab.estimators import Choice, Ruled
from dst_lab.fleet.contract import ContractError


class Rules:
    """The rules of an estimator's temperatures, which all runs of a fleet share.

    Args:
        choice: the estimator.
        runs: how many there are.
        device: of the states.
        steps: how many there are, for the rules that ask for it.
    """

    def __init__(self, choice: Choice, runs: int, device: torch.device, steps: int) -> None:
        self.runs, self.device = runs, device
        self.parts: dict[str, tuple[str, str]] = {}
        """Temperature -> (label of its rule, which of the rule's two temperatures it is)."""
        self.rules: dict[str, Rule] = {}
        """By their names; a second one of a name, with other constants, is NAME-2."""
        labels: dict[Ruled, str] = {}
        for name, course, part in ruled_parts(choice):
            if course not in labels:
                labels[course] = f"{course.name}-2" if course.name in self.rules else course.name
                self.rules[labels[course]] = rule_of(course, steps)
            self.parts[name] = labels[course], part
        self.states: list[dict[str, State]] = []
        self.last: list[dict[str, Tensor]] = []
        """At each place, the temperatures [runs] of the latest pass of training; the mean where they differ inside."""
        self.counted = False
        """True where the places are known, and no more are added."""

    @property
    def state(self) -> dict[str, Tensor]:
        """What training changes, [runs, ...] each, by name."""
        return {
            f"rules/{site}/{label}/{name}": tensor
            for site, states in enumerate(self.states)
            for label, state in states.items()
            for name, tensor in state.items()
        }

    @torch.no_grad()
    def taus(self, site: int, logits: Tensor, *, dim: int | None, batch_dims: int, observe: bool) -> dict[str, Tensor]:
        """The temperatures at a place for these logits [runs, ...], which they broadcast to; by their names."""
        if site == len(self.states):
            if self.counted:
                raise ContractError(
                    f"a pass of training makes {site} choices, and rules set the temperatures of these: this is one "
                    "more. Take a new choosers(..) for every pass of `evaluate`, `diagnose` and `artefacts`, and make "
                    "the same choices in each as in `loss`"
                )
            self.states.append({label: rule.start((self.runs,), self.device) for label, rule in self.rules.items()})
            self.last.append({name: torch.full((self.runs,), torch.nan, device=self.device) for name in self.parts})
        how = {"dim": dim, "run_dims": 1, "batch_dims": batch_dims}
        taus_of = {
            label: _taus(rule, self.states[site][label], logits.detach(), observe, how)
            for label, rule in self.rules.items()
        }
        result = {name: taus_of[label][part] for name, (label, part) in self.parts.items()}
        if observe:
            for name, tau in result.items():
                one = tau.numel() == self.runs
                self.last[site][name].copy_(tau.reshape(self.runs) if one else tau.reshape(self.runs, -1).mean(-1))
        return result

    def latest(self, name: str) -> Tensor:
        """[runs], or [runs, places] where there are several: a temperature as the latest pass of training had it."""
        values = torch.stack([last[name] for last in self.last], 1)
        return values[:, 0] if values.shape[1] == 1 else values


def _taus(rule: Rule, state: State, logits: Tensor, observe: bool, how: dict[str, Any]) -> dict[str, Tensor]:
    """A rule's temperatures, "f" and "b", for logits [runs, ...]; where it observes them, its state moves in place."""
    runs, own, observed = len(logits), state, logits
    lone = runs == 1 and logits.device.type == "cpu"
    if lone:  # a lone run's sums would be rounded in another order than those of one of several, so it is doubled
        own = {name: tensor.repeat(2, *[1] * (tensor.dim() - 1)) for name, tensor in state.items()}
        observed = logits.expand(2, *logits.shape[1:])
    view = View.of(observed, **how)
    taus = rule.advance(own, view) if observe else rule.temperatures(own, view)
    if lone and observe:
        for name, tensor in state.items():
            tensor.copy_(own[name][:1])
    given = {part: torch.as_tensor(tau)[:runs] for part, tau in taus._asdict().items()}
    if logits.device.type == "cpu" and not type(rule).__module__.startswith("decoupled_st."):
        _check(rule, given, logits)  # on CUDA every step would wait for it
    return given


def _check(rule: Rule, taus: Mapping[str, Tensor], logits: Tensor) -> None:
    """Refuse what is no temperature, for logits [runs, ...]. A NaN that comes of logits which are none is left to the
    run's loss, by which it diverges."""
    for part, tau in taus.items():
        wrong = ~(tau >= 0)
        if wrong.any():
            finite = logits.flatten(1).isfinite().all(1).view(-1, *[1] * (tau.dim() - 1))
            wrong &= (tau < 0) | finite
        if wrong.any():
            raise ValueError(
                f"the rule {rule.name} gave tau_{part} = {tau[wrong][0]:g}, and a temperature is at least 0"
            )


def ruled_parts(choice: Choice) -> list[tuple[str, Ruled, str]]:
    """(name, rule, which of the rule's two temperatures it is) of each temperature that a rule sets."""
    kind = choice.kind
    return [
        (name, course, "f" if name == kind.draw else "b")
        for name, course in choice.temperatures
        if isinstance(course, Ruled)
    ]


def rule_of(ruled: Ruled, steps: int | None = None) -> Rule:
    """The library's value; a sentence where it does not know the rule or the constants.

    A rule with a constant `steps` is given those of the fleet, unless it has its own, of which 0 means none. A constant
    with a float as its default is given a float, as a text says 2 for 2.0.
    """
    kind = temperatures.registered().get(ruled.name)
    own = {} if kind is None else {field.name: field.default for field in fields(kind)}
    constants: dict[str, Any] = {
        key: float(value) if isinstance(own.get(key), float) else value for key, value in ruled.constants
    }
    if "steps" in own:
        constants["steps"] = constants.get("steps", steps) or None
    try:
        return temperatures.from_dict({"name": ruled.name, **constants})
    except TypeError as error:
        raise ValueError(f"the rule {ruled.to_json()}: {error}") from None
