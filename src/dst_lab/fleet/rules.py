"""Rules that set a fleet's temperatures: one state per rule and place where choices are made, with a run axis.

Only passes of training change a state, in place, so that a captured CUDA graph carries it on; what evaluates reads it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from decoupled_st import temperatures
from decoupled_st.temperatures import Rule, State
from dst_lab.configs import Choice, Ruled


class Rules:
    """The rules of an estimator's temperatures.

    Args:
        choice: the estimator, whose rules all runs of a fleet share.
        runs: how many.
        device: of the states.
    """

    def __init__(self, choice: Choice, runs: int, device: torch.device) -> None:
        self.runs, self.device = runs, device
        self.parts = {name: (ruled.to_json(), part) for name, ruled, part in ruled_parts(choice)}
        self.rules = {ruled.to_json(): rule_of(ruled) for _, ruled, _ in ruled_parts(choice)}
        self.states: list[dict[str, State]] = []
        self.last: list[dict[str, Tensor]] = []
        """At each place, the temperatures [runs] of the latest pass of training; the mean where they differ inside."""

    @property
    def state(self) -> dict[str, Tensor]:
        """What training changes, [runs, ...] each, by name."""
        return {
            f"rules/{site}/{text}/{name}": tensor
            for site, states in enumerate(self.states)
            for text, state in states.items()
            for name, tensor in state.items()
        }

    @torch.no_grad()
    def taus(self, site: int, logits: Tensor, *, dim: int | None, batch_dims: int, observe: bool) -> dict[str, Tensor]:
        """The temperatures at a place for these logits [runs, ...], which they broadcast to; by their names."""
        if site == len(self.states):
            self._add_site()
        lone = len(logits) == 1
        # A lone run's sums would be rounded in another order than those of one of several: it gets company.
        seen = logits.detach().expand(2, *logits.shape[1:]) if lone else logits.detach()
        found: dict[str, dict[str, Tensor]] = {}
        for text, rule in self.rules.items():
            state = self.states[site][text]
            given = {name: tensor.expand(2, *tensor.shape[1:]) for name, tensor in state.items()} if lone else state
            taus, after = rule(given, seen, dim=dim, run_dims=1, batch_dims=batch_dims)
            found[text] = {part: tau[: len(logits)] for part, tau in taus._asdict().items()}
            if observe:
                for name, tensor in state.items():
                    if after[name] is not given[name]:
                        tensor.copy_(after[name][: len(logits)])
        result = {name: found[text][part] for name, (text, part) in self.parts.items()}
        if observe:
            for name, tau in result.items():
                one = tau.numel() == self.runs
                self.last[site][name].copy_(tau.reshape(self.runs) if one else tau.reshape(self.runs, -1).mean(-1))
        return result

    def _add_site(self) -> None:
        self.states.append({text: rule.start((self.runs,), self.device) for text, rule in self.rules.items()})
        self.last.append({name: torch.full((self.runs,), torch.nan, device=self.device) for name in self.parts})

    def latest(self, name: str) -> Tensor:
        """[runs], or [runs, places] where there are several: a temperature as the latest pass of training had it."""
        values = torch.stack([last[name] for last in self.last], 1)
        return values[:, 0] if values.shape[1] == 1 else values


def ruled_parts(choice: Choice) -> list[tuple[str, Ruled, str]]:
    """(name, rule, which of the rule's two temperatures it is) of each temperature that a rule sets."""
    card = choice.card
    return [
        (name, course, "f" if name == card.draw else "b")
        for name, course in choice.temperatures
        if isinstance(course, Ruled)
    ]


def rule_of(ruled: Ruled) -> Rule:
    """The library's value; a sentence where it does not know the rule or the constants."""
    try:
        return temperatures.from_dict({"name": ruled.name, **dict(ruled.constants)})
    except TypeError as error:
        raise ValueError(f"the rule {ruled.to_json()}: {error}") from None


def has_one_per_run(ruled: Ruled) -> bool:
    """True where a rule sets one temperature per run and place, and not one per row of logits."""
    rule = rule_of(ruled)
    taus, _ = rule(rule.start((1,)), torch.zeros(1, 2, 3), dim=-1, run_dims=1, batch_dims=0)
    return all(tau.numel() == 1 for tau in taus)


def by_place(rules: "Rules", logits: Sequence[Tensor], *, observe: bool) -> dict[str, Tensor]:
    """[places, runs] by name, for logits that are parameters, one tensor [runs, ..., K] per place."""
    found = [rules.taus(place, of, dim=-1, batch_dims=0, observe=observe) for place, of in enumerate(logits)]
    return {name: torch.stack([taus[name].reshape(rules.runs).float() for taus in found]) for name in rules.parts}
