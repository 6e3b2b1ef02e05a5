"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run noise, and temperatures, which
are given or set by rules.

A rule has one state per place where choices are made, with a run axis. Only passes of training change a state, in
place, so that a captured CUDA graph carries it on; what evaluates reads it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st import temperatures
from decoupled_st.temperatures import Rule, State, View
from dst_lab.estimators import Choice, Ruled, is_own, takes_noise
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.streams import Source


class Chooser:
    """One forward pass's worth of choices, for logits with a leading run axis.

    Args:
        choice: the estimator, with the options that all runs share.
        taus: its temperatures, [runs] each, but for those that rules set.
        source: of the draws; None takes the argmax everywhere.
        rules: that set temperatures, if there are any.
        observe: whether the rules take this pass into account: it is one of training.
    """

    def __init__(
        self,
        choice: Choice,
        taus: Mapping[str, Tensor],
        source: Source | None,
        rules: "Rules | None" = None,
        observe: bool = False,
    ) -> None:
        self.choice, self.kind, self.options = choice, choice.kind, dict(choice.options)
        self.taus, self.source = taus, source
        self.rules, self.observe = rules, observe
        self.place = 0

    def binary(self, logits: Tensor) -> Tensor:
        """0 or 1 for log-odds [runs, ...]."""
        return self._choose("binary", logits, batch_dims=1)

    def categorical(self, logits: Tensor, *, parameters: bool = False) -> Tensor:
        """One-hot along the last dim for logits [runs, ..., K]: [runs, images, ..., K], or, where the logits are
        `parameters`, the same for all images."""
        return self._choose("categorical", logits, batch_dims=0 if parameters else 1)

    def _choose(self, kind: str, logits: Tensor, batch_dims: int) -> Tensor:
        taus = {name: tau.view(-1, *[1] * (logits.dim() - 1)) for name, tau in self.taus.items()}
        if self.rules:
            dim = None if kind == "binary" else -1
            taus |= self.rules.taus(self.place, logits, dim=dim, batch_dims=batch_dims, observe=self.observe)
            self.place += 1
        if self.source is None:  # the gradient is the surrogate's at the logits themselves, where it has one
            without_draw = getattr(dst, kind)
            if self.kind.backward is None:
                return without_draw.identity_ste(logits)
            return without_draw.decoupled(logits, tau_f=0.0, tau_b=taus[self.kind.backward])
        estimator = self.kind.functions[kind]
        # One's own gets its noise whatever its value says: should it draw, then not from torch's global generator.
        if not (takes_noise(self.kind) or is_own(self.kind)):
            return estimator(logits, **taus, **self.options)
        law = "logistic" if kind == "binary" else "gumbel"
        shape, noises = logits.shape[1:], int(self.options.get("samples", 1))
        if noises == 1:
            noise = self.source.noise(law, shape)
        else:
            noise = self.source.noise(law, (noises, *shape)).transpose(0, 1)  # [noises, runs, ...]
        return estimator(logits, noise=noise, **taus, **self.options)


def drawn_at(choose: Chooser, logits: Tensor) -> Tensor:
    """[runs] or [1]: the temperature of the distribution that is drawn from, or relaxed, in the chooser's next choice,
    of logits [runs, images, ..., K]; 0 where it is the argmax. Where a rule sets it row by row it is as the rule gives
    it, [runs, images, ..., 1] or what broadcasts to that: no mean of temperatures is that of the choices."""
    kind, rules = choose.kind, choose.rules
    draw = kind.draw if kind.draw is not None else 1.0 if takes_noise(kind) else kind.backward
    if not isinstance(draw, str):
        return torch.full((1,), draw or 0.0, device=logits.device)
    if rules and draw in rules.parts:
        taus = rules.taus(choose.place, logits, dim=-1, batch_dims=1, observe=False)
        return taus[draw].reshape(rules.runs) if taus[draw].numel() == rules.runs else taus[draw]
    return choose.taus[draw]


def along(tau: Tensor, logits: Tensor) -> Tensor:
    """A temperature as `drawn_at` gives it, in the logits' dtype and as it divides them."""
    return (tau.view(-1, *[1] * (logits.dim() - 1)) if tau.dim() == 1 else tau).to(logits)


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
