"""The rule that sets both temperatures from what it measures, with one set of constants for all networks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.contract import check_count, check_float, to_compute
from decoupled_st.estimators.surrogate import can_look
from decoupled_st.temperatures.registry import register
from decoupled_st.temperatures.rule import Rule, State, Taus, View

_LARGEST = 1e30  # of a mean square, and of tau_b where the logits are parameters
SETTLED, EVERY = 50, 8
"""Passes: up to the first all are measured, after it one of eight, which counts as eight."""


@register
@dataclass(frozen=True, kw_only=True)
class SelfTempered(Rule):
    """No temperature to tune: tau_b follows the scale of the logits, tau_f falls while the network trains.

        tau_b = max(share * s, b)       s  root mean square of the layer's centred logits
                                        b  max(floor, draw) * sqrt(log2 K); where the logits are parameters at
                                           least `parameters` times the s of the first pass
        tau_f = q + (high - q) * w * r  q  low * b, a quiet draw; or `draw`, and then w is 0
                                        r  from 1 to 0 along a line over the share `fall` of the `steps`
                                        w  1 for a layer of few bits, 0 for one of many

    tau_b is at most `most` times b, or times what follows from the first pass where that is more: a surrogate that
    never saturates lets the logits grow without end. s is a mean over about the last 50 passes; after the 50th one of
    eight is measured, each time another of the eight. Where `steps` is None, r is max(0, 1 - m / enough) with m
    how evenly the argmax categories are in use, from 0 to 1, over about the last `window` passes, and 0 before that is
    measured, as it never is with one sample per pass: that does less well. w is 1 up to `few_bits` bits per sample, 0
    from twice as many on, and 0 where the logits are parameters.

    Args:
        steps: how many training calls the module will get; required. A call is one forward pass in training, so it is
            the number of optimiser steps where each makes one call. A network unrolled over T time steps makes T calls
            per optimiser step, gradients accumulated over four batches make four: multiply by them. None where the
            end of the training is not known, which does less well on layers of few bits.
        draw: the temperature of the draw where it belongs to the model, as in a VAE, where it is also that of the
            divergence: tau_f is held there, and the surrogate is no sharper than the draw.
        low, high: between these tau_f moves; `low` is a share of b.
        share, floor, parameters, most: of tau_b; `floor` is that of binary neurons, for which K is 2.
        ceiling: up to here the s of the first pass raises b, where it is above the floor.
        few_bits: what few means: latents times log2 of the categories.
        enough, window: of the usage, where `steps` is None.
        fall: the share of `steps` over which tau_f falls.

    Example:
        >>> import torch, decoupled_st as dst
        >>> choice = dst.nn.Categorical(dst.SelfTempered(steps=40_000))
        >>> choice(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    name: ClassVar[str] = "self"
    steps: int | None
    draw: float | None = None
    low: float = 0.05
    high: float = 4.0
    share: float = 0.125
    floor: float = 0.15
    ceiling: float = 0.15
    parameters: float = 2.0
    most: float = 16.0
    few_bits: float = 16.0
    enough: float = 0.99
    window: float = 4000.0
    fall: float = 0.9

    def __post_init__(self) -> None:
        for constant in fields(self):
            name, value = constant.name, getattr(self, constant.name)
            if name == "steps" or (name == "draw" and value is None):
                continue
            zero = name in ("low", "high", "share", "parameters")
            object.__setattr__(self, name, check_float(name, value, zero=zero))
        if self.high < self.low:
            raise ValueError(f"high must be at least low, got high={self.high} and low={self.low}")
        if self.most < 1:
            raise ValueError(f"most must be at least 1, since tau_b is never below b, got most={self.most}")
        if self.steps is not None:
            object.__setattr__(self, "steps", check_count("steps", self.steps))

    @property
    def takes_argmax(self) -> bool:
        return self.low == 0 and self.draw is None

    def advice(self, view: View) -> str | None:
        if self.steps is not None or self._few(view) == 0:
            return None
        return (
            f"SelfTempered(steps=None) on a layer of {view.bits:.3g} bits per sample: on an autoencoder of four codes "
            "of 16 it ended 36 to 47 nats worse than with steps=, the number of training calls. Give it if it is known"
        )

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        counts = ("passes", "usages")
        return {
            name: torch.zeros(tuple(runs), dtype=torch.int64 if name in counts else torch.float32, device=device)
            for name in (*counts, "first", "scale", "usage")
        }

    def observe(self, state: State, view: View) -> State:
        passes = state["passes"] + 1
        settled = passes > SETTLED
        measured, weight = ~settled | (_place(passes) == 0), torch.where(settled, EVERY, 1).float()
        if can_look(measured) and not measured.any():
            return {**state, "passes": passes}
        s, known = scale(view)
        known = known & measured
        rate = torch.where(state["first"] == 0, 1.0, torch.maximum(1 / passes.float(), weight / SETTLED))
        after = {
            **state,
            "passes": passes,
            "first": torch.where((state["first"] == 0) & known, s, state["first"]),
            "scale": _towards(state["scale"], s, known, rate),
        }
        if self.steps is None and self._few(view) > 0:
            m, known = usage(view)
            known = known & measured
            usages = after["usages"] = state["usages"] + known
            rate = torch.maximum(1 / usages.clamp(min=1).float(), weight / self.window).clamp(max=1.0)
            after["usage"] = _towards(state["usage"], m, known, rate)
        return after

    def temperatures(self, state: State, view: View) -> Taus:
        factor, floor, ceiling = self._least(view)
        b = (factor * state["first"]).clamp(floor, ceiling)
        most = self.most * torch.maximum(b, self.share * state["first"])
        tau_b = (self.share * state["scale"]).clamp(b, most)
        q = self.low * b if self.draw is None else torch.full_like(b, self.draw)
        w = self._few(view)
        if w == 0:
            return Taus(view.spread(q), view.spread(tau_b))
        if self.steps is not None:
            r = (1 - state["passes"].float() / (self.fall * self.steps)).clamp(min=0.0)
        else:
            r = torch.where(state["usages"] > 0, (1 - state["usage"] / self.enough).clamp(min=0.0), 0.0)
        return Taus(view.spread(q + (self.high - q) * (w * r)), view.spread(tau_b))

    def _least(self, view: View) -> tuple[float, float, float]:
        """(factor, floor, ceiling): b is the first pass's scale times the factor, held between the two. A
        choice among more categories has a warmer floor; of logits that are parameters there is no ceiling."""
        floor = max(self.floor, self.draw or 0.0) * math.sqrt(math.log2(max(view.categories, 2)))
        return (1.0, floor, max(self.ceiling, floor)) if view.batch_dims else (self.parameters, floor, _LARGEST)

    def _few(self, view: View) -> float:
        """w: 1 for few bits, down to 0 for many; 0 for logits that are parameters and for a draw that is held."""
        held = self.draw is not None or not view.batch_dims
        return 0.0 if held else min(max(2 - view.bits / self.few_bits, 0.0), 1.0)


def _place(passes: Tensor) -> Tensor:
    """0 for the one of eight passes that is measured: another of them each time, and in another order every 64, so that
    each call of a module that is called several times per step has its turn, and none for long."""
    return (passes + 3 * (passes // EVERY) + passes // EVERY**2) % EVERY


def _towards(mean: Tensor, value: Tensor, known: Tensor, rate: Tensor) -> Tensor:
    """A running mean, moved by `rate` where the value is known."""
    return torch.where(known, mean + rate * (value - mean), mean)


def scale(view: View) -> tuple[Tensor, Tensor]:
    """The root mean square of the centred logits (of the log-odds themselves), per run.

    Masked, infinite and NaN logits are left out, and rows without two categories to choose from. Where a run has more
    than some thousand logits, some rows from all over are measured: a mean needs no more.

    Returns:
        The scale, finite, 0 where there is nothing to measure; and whether it is above 0.
    """
    view = view.thinned()
    l = to_compute(view.logits, view.logits)
    allowed = l.isfinite() if view.mask is None else l.isfinite() & view.mask
    l = torch.where(allowed, l, 0.0)
    if view.dim is not None:
        many = allowed.sum(view.dim, keepdim=True)
        allowed = allowed & (many > 1)
        l = torch.where(allowed, l - l.sum(view.dim, keepdim=True) / many.clamp(min=1), 0.0)
    runs = l.shape[: view.run_dims]
    square = l.square().reshape(*runs, -1).sum(-1) / allowed.reshape(*runs, -1).sum(-1).clamp(min=1)
    value = square.nan_to_num(nan=0.0, posinf=_LARGEST).clamp(max=_LARGEST).sqrt().float()
    return value, value > 0


def usage(view: View) -> tuple[Tensor, Tensor]:
    """How evenly the samples of a batch use the categories, by their argmax: per run, from 0 to 1.

    The entropy of a latent's argmax categories over the batch, divided by the largest that it could have, averaged over
    the latents. A batch of one sample has no usage, and a latent with one category to choose from is left out.

    Returns:
        The usage, finite, 0 where there is nothing to measure; and whether there was something.
    """
    if view.dim is None:
        log_odds = view.masked(math.nan).clamp(-1.0, 1.0)  # their signs alone count, also of infinite ones
        l = torch.stack((torch.zeros_like(log_odds), log_odds), -1)
    else:
        l = view.masked(-math.inf).movedim(view.dim, -1)
    grouped = l.reshape(*l.shape[: view.run_dims], view.samples, view.latents, view.categories)
    best, chosen = grouped.max(-1)
    possible = (grouped > -math.inf).any(-3)
    counts = torch.zeros_like(possible, dtype=torch.float32).scatter_add(
        -1, chosen.transpose(-1, -2), best.isfinite().float().transpose(-1, -2)
    )  # [runs..., latents, K]
    samples = counts.sum(-1)
    share = counts / samples.clamp(min=1).unsqueeze(-1)
    most = torch.minimum(samples, possible.sum(-1).float()).clamp(min=1).log()
    measurable = most > 0
    each = torch.where(measurable, torch.special.entr(share).sum(-1) / torch.where(measurable, most, 1.0), 0.0)
    latents = measurable.sum(-1)
    return (each.sum(-1) / latents.clamp(min=1)).clamp(0.0, 1.0).float(), latents > 0
