"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run temperatures, per-run noise."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.operations.noise import gumbel_from_uniform, logistic_from_uniform
from dst_lab.estimators import (
    AVERAGED,
    CLEAN,
    GAPPED,
    IDENTITY,
    PERTURBED,
    SECOND_ORDER,
    Choice,
    Kind,
    is_own,
    takes_noise,
)
from dst_lab.fleet.rules import Rules, by_row
from dst_lab.fleet.streams import Source

FUSED = (IDENTITY, CLEAN, PERTURBED)
"""The surrogates that all kernels and compiled loops have."""
GIVEN_CHOICE = (SECOND_ORDER, GAPPED, AVERAGED)
"""Those that depend on what was drawn, which the kernels of categorical choices have too."""


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
        rules: Rules | None = None,
        observe: bool = False,
    ) -> None:
        self.choice, self.kind, self.options = choice, choice.kind, dict(choice.options)
        self.taus, self.source = taus, source
        self.rules, self.observe = rules, observe
        self.place = 0

    def binary(self, logits: Tensor) -> Tensor:
        """0 or 1 for log-odds [runs, ...]."""
        return self._choose("binary", logits, logistic_from_uniform, batch_dims=1)

    def categorical(self, logits: Tensor, *, parameters: bool = False) -> Tensor:
        """One-hot along the last dim for logits [runs, ..., K]: [runs, images, ..., K], or, where the logits are
        `parameters`, the same for all images."""
        return self._choose("categorical", logits, gumbel_from_uniform, batch_dims=0 if parameters else 1)

    def _choose(self, kind: str, logits: Tensor, to_noise: Callable[[Tensor], Tensor], batch_dims: int) -> Tensor:
        ruled = self.ruled(kind, logits, batch_dims)
        if logits.is_cuda and not declined(self.choice, surrogates_of(kind)):
            return self._fused(kind, logits, ruled)
        taus = {name: tau.view(-1, *[1] * (logits.dim() - 1)) for name, tau in self.taus.items()} | ruled
        if self.source is None:
            return argmax(self.kind, kind, logits, taus)
        estimator = function_of(self.kind, kind)
        # One's own gets its noise whatever its value says: should it draw, then not from torch's global generator.
        if not (takes_noise(self.kind) or is_own(self.kind)):
            return estimator(logits, **taus, **self.options)
        noise = self._noise(logits.shape[1:], to_noise)
        return estimator(logits, noise=noise, **taus, **self.options)

    def ruled(self, kind: str, logits: Tensor, batch_dims: int = 1) -> dict[str, Tensor]:
        """The temperatures that rules set at the next place, for these logits, which they broadcast to."""
        if not self.rules:
            return {}
        dim, place = None if kind == "binary" else -1, self.place
        self.place += 1
        return self.rules.taus(place, logits, dim=dim, batch_dims=batch_dims, observe=self.observe)

    def _noise(self, shape: torch.Size, to_noise: Callable[[Tensor], Tensor]) -> Tensor:
        """[runs, *shape], or [noises, runs, *shape] where the estimator takes several."""
        assert self.source is not None
        noises = int(self.options.get("samples", 1))
        if noises == 1:
            return to_noise(self.source.uniform(shape))
        return to_noise(self.source.uniform((noises, *shape))).transpose(0, 1)

    def _fused(self, kind: str, logits: Tensor, ruled: Mapping[str, Tensor]) -> Tensor:
        from dst_lab.fleet.cuda.choose import choose

        draws = Draws.of(self, logits.detach().flatten(1)[:, 0], ruled, surrogates_of(kind))
        if self.source is not None:
            self.source.site += 1
        return choose(logits, draws, kind)


def function_of(estimator: Kind, kind: str) -> Callable[..., Any]:
    """The library's function for choices of a kind, "categorical" or "binary"."""
    return estimator.functions[kind]


def argmax(estimator: Kind, kind: str, logits: Tensor, taus: Mapping[str, Tensor]) -> Tensor:
    """The choice without any draw, with the gradient of the surrogate at the logits themselves where it has one."""
    estimators = getattr(dst, kind)
    if estimator.backward is None:
        return estimators.identity_ste(logits)
    return estimators.decoupled(logits, tau_f=0.0, tau_b=taus[estimator.backward])


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


def surrogates_of(kind: str) -> tuple[str, ...]:
    """The surrogates that kernels have for choices of a kind, "categorical" or "binary"."""
    return (*FUSED, *GIVEN_CHOICE) if kind == "categorical" else FUSED


def declined(choice: Choice, surrogates: tuple[str, ...] = FUSED) -> str | None:
    """Why kernels that have these surrogates do not train an estimator, or not with its rules; None where they do."""
    kind = choice.kind
    if rules := by_row(choice):
        return f"the rule {rules} sets one temperature per row of logits"
    if kind.surrogate in surrogates and kind.draw is not None and not is_own(kind):
        return None
    if kind.draw is None:
        return f"{kind.name} relaxes the choice instead of drawing it"
    if kind.surrogate in GIVEN_CHOICE:
        return f"the gradient of {kind.name} needs the choice"
    if kind.surrogate not in surrogates:
        return f"the surrogate of {kind.name} is {kind.surrogate}, and there are {', '.join(surrogates)}"
    return f"{kind.name} is an estimator of your own"


@dataclass(frozen=True)
class Draws:
    """What the kernels are told of a pass's choices: where random numbers come from, two temperatures per run, of the
    draw and of the surrogate ([runs], or [places, runs] where they differ from place to place), which surrogate, and
    the numbers that it takes: over how many noises it is averaged, by how much the choice leads (NaN for "p")."""

    drawn: Tensor
    surrogate: Tensor
    key: Tensor
    step: Tensor
    use: int
    site: int
    through: str
    samples: int = 1
    gap: float = 0.0

    @classmethod
    def of(
        cls,
        chooser: Chooser,
        runs: Tensor,
        ruled: Mapping[str, Tensor] | None = None,
        surrogates: tuple[str, ...] = FUSED,
    ) -> "Draws":
        """A chooser's, from its present site on; `runs` is any tensor [runs]. Without a source: the argmax. `ruled` are
        temperatures that rules set, [runs, 1, ..] or [places, runs]; `surrogates` those that the kernels have."""
        kind, source = chooser.kind, chooser.source
        if reason := declined(chooser.choice, surrogates):
            raise ValueError(f"no kernel trains {kind.name}: {reason}")
        flat = {name: tau.flatten() if tau.numel() == len(runs) else tau for name, tau in (ruled or {}).items()}
        drawn, surrogate = draw_and_surrogate(kind, {**chooser.taus, **flat}, runs)
        if source is None:
            nothing = torch.zeros_like(runs, dtype=torch.int64)
            through = IDENTITY if kind.surrogate == IDENTITY else CLEAN
            return cls(torch.zeros_like(runs), surrogate, nothing, nothing[0], 0, 0, through)
        step = torch.as_tensor(source.step, device=runs.device)
        key, gap = source.streams.key_of_run, chooser.options.get("gap", 0.0)
        return cls(
            drawn, surrogate, key, step, int(source.use), source.site, kind.surrogate,
            samples=int(chooser.options.get("samples", 1)), gap=gap if isinstance(gap, float) else math.nan,
        )  # fmt: skip

    def at(self, place: int) -> tuple[Tensor, Tensor]:
        """The two temperatures [runs] of the choices made at a place."""
        drawn, surrogate = (tau[place] if tau.dim() == 2 else tau for tau in (self.drawn, self.surrogate))
        return drawn, surrogate


def draw_and_surrogate(kind: Kind, taus: Mapping[str, Tensor], runs: Tensor) -> tuple[Tensor, Tensor]:
    """The temperatures [runs] of an estimator's draw (0: the argmax) and of its surrogate (1 where it has none)."""
    drawn = taus[kind.draw] if isinstance(kind.draw, str) else torch.full_like(runs, kind.draw or 0.0)
    return drawn, taus[kind.backward] if kind.backward else torch.ones_like(runs)
