"""The discrete choices inside a fleet's forward pass: the library's estimators, per-run temperatures, per-run noise."""

from collections.abc import Mapping

import torch
from torch import Tensor

import decoupled_st as dst
from dst_lab.estimators import Choice, is_own, takes_noise
from dst_lab.fleet.rules import Rules
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
        rules: Rules | None = None,
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
