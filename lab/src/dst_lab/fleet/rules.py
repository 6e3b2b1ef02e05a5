"""Rules that set a fleet's temperatures: one state per rule and place where choices are made, with a run axis.

Only passes of training change a state, in place, so that a captured CUDA graph carries it on; what evaluates reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from decoupled_st import temperatures
from decoupled_st.temperatures import Rule, State, Taus, View
from dst_lab.estimators import Choice, Ruled
from dst_lab.fleet.contract import ContractError


class Rules:
    """The rules of an estimator's temperatures.

    All runs of a fleet have rules of the same names; the constants may differ from run to run.

    Args:
        choices: the estimator of each run.
        device: of the states.
        steps: how many there are, for the rules that ask for it.
    """

    def __init__(self, choices: Sequence[Choice], device: torch.device, steps: int) -> None:
        self.runs, self.device = len(choices), device
        labels = choices[0].rules
        self.parts = {name: (labels[name], part) for name, _, part in ruled_parts(choices[0])}
        self.groups: dict[str, list[Group]] = {}
        """The rules behind a label of `Choice.rules`, and which runs each is for."""
        for name, (label, _) in self.parts.items():
            courses = [dict(choice.temperatures)[name] for choice in choices]
            self.groups[label] = [
                Group(rule_of(ruled, steps), _rows([course == ruled for course in courses], device))
                for ruled in dict.fromkeys(courses)
                if isinstance(ruled, Ruled)
            ]
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
            self.states.append({label: _start(of, self.runs, self.device) for label, of in self.groups.items()})
            self.last.append({name: torch.full((self.runs,), torch.nan, device=self.device) for name in self.parts})
        logits = logits.detach()
        taus_of: dict[str, dict[str, Tensor]] = {}
        for label, groups in self.groups.items():
            state, how = self.states[site][label], {"dim": dim, "run_dims": 1, "batch_dims": batch_dims}
            taus = [group.taus(state, logits, observe=observe, **how) for group in groups]
            taus_of[label] = {part: _joined([tau[part] for tau in taus], groups) for part in Taus._fields}
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


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of a fleet for which a rule has the same constants."""

    rule: Rule
    rows: slice | Tensor
    """The places of these runs; a slice where they are consecutive."""

    def taus(self, state: State, logits: Tensor, *, observe: bool, **how: Any) -> dict[str, Tensor]:
        """The temperatures for these runs, "f" and "b"; `state` is that of all runs."""
        own = {name: tensor[self.rows] for name, tensor in state.items()}
        observed = logits[self.rows]
        lone = len(observed) == 1 and observed.device.type == "cpu"
        if lone:  # a lone run's sums would be rounded in another order than those of one of several: it gets company
            own = {name: tensor.repeat(2, *[1] * (tensor.dim() - 1)) for name, tensor in own.items()}
            observed = observed.expand(2, *observed.shape[1:])
        view = View.of(observed, dim=how["dim"], run_dims=how["run_dims"], batch_dims=how["batch_dims"])
        if not observe:
            taus = self.rule.temperatures(own, view)
        else:
            taus = self.rule.advance(own, view)
            if lone or isinstance(self.rows, Tensor):
                for name, tensor in state.items():
                    tensor[self.rows] = own[name][:1] if lone else own[name]
        given = {part: torch.as_tensor(tau)[: len(logits[self.rows])] for part, tau in taus._asdict().items()}
        if logits.device.type == "cpu" and not type(self.rule).__module__.startswith("decoupled_st."):
            _check(self.rule, given, logits[self.rows])  # on CUDA every step would wait for it
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


def _start(groups: Sequence[Group], runs: int, device: torch.device) -> State:
    """The state of all runs before the first pass, each as its own rule begins."""
    state, *others = (group.rule.start((runs,), device) for group in groups)
    for group, start in zip(groups[1:], others, strict=True):
        if _form(start) != _form(state):
            raise ContractError(
                f"the rule {group.rule.name}: start must give the same names, shapes and dtypes for all constants, "
                f"got {_form(state)} and {_form(start)}: give its state one form, or train its runs by --fleet 1"
            )
        for name, tensor in state.items():
            tensor[group.rows] = start[name][group.rows]
    return state


def _form(state: State) -> str:
    """The names, shapes and dtypes of a state, as text."""
    return ", ".join(f"{name} {list(state[name].shape)} {state[name].dtype}" for name in sorted(state)) or "nothing"


def _joined(taus: Sequence[Tensor], groups: Sequence[Group]) -> Tensor:
    """The temperatures of all runs from those of the groups."""
    if len(groups) == 1:
        return taus[0]
    whole = taus[0].new_empty((sum(len(tau) for tau in taus), *taus[0].shape[1:]))
    for tau, group in zip(taus, groups, strict=True):
        whole[group.rows] = tau
    return whole


def _rows(chosen: Sequence[bool], device: torch.device) -> slice | Tensor:
    """The places of what is true: as a slice where they lie one behind the other."""
    places = [place for place, true in enumerate(chosen) if true]
    if places[-1] - places[0] + 1 == len(places):
        return slice(places[0], places[-1] + 1)
    return torch.tensor(places, device=device)


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
