"""The optimiser of a fleet: one definition of the update, compiled on CUDA.

    m <- beta1 m + (1 - beta1) g
    v <- beta2 v + (1 - beta2) g^2
    p <- p - lr (decay p + (m / mean) / (sqrt(v) / root + eps))

Adam, AdamW and RAdam differ in the four numbers `decay`, `mean`, `root` and `eps` alone, which depend on the number of
the update and nothing else (`UpdateRule.scalars`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

from dst_lab.fleet.layers import compiled
from dst_lab.runs import Config

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Scalars(NamedTuple):
    """The four numbers of an update: floats, or tensors without dimensions, which a captured graph reads."""

    decay: float | Tensor
    mean: float | Tensor
    root: float | Tensor
    eps: float | Tensor


@dataclass(frozen=True)
class UpdateRule:
    """What the updates of a fleet have in common.

    Args:
        name: adam (Kingma and Ba, 2015), adamw (Loshchilov and Hutter, 2019) or radam (Liu et al., 2020), each with
            torch's defaults.
        weight_decay: of AdamW.
        schedule: what becomes of the learning rate after the warm-up: constant, or cosine, down to 0 at the end.
        warmup: updates over which the learning rate rises: it is t / warmup of its full value at update t.
        steps: updates in all.
    """

    name: str = "adam"
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: int = 0
    steps: int = 1

    @classmethod
    def of(cls, config: Config, images: int) -> "UpdateRule":
        """A config's, when there are `images` to train on."""
        steps, warmup = config.steps_of(images)[0], round(config.warmup * config.batches_of(images))
        if warmup > steps:
            raise ValueError(
                f"warmup must end before training does: {config.warmup:g} epochs are {warmup} of {steps} steps"
            )
        return cls(config.optimiser, config.weight_decay, config.lr_schedule, warmup, steps)

    def factor(self, number: int) -> float:
        """The share of the learning rate at update `number`, counted from 1."""
        if number <= self.warmup:
            return number / self.warmup
        if self.schedule == "constant" or self.steps <= self.warmup:
            return 1.0
        after = (min(number, self.steps) - 1 - self.warmup) / (self.steps - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * after))

    def scalars(self, number: int) -> Scalars:
        """The scalars of update `number`, counted from 1."""
        factor, unbias = self.factor(number), 1 - BETA1**number
        decay, root = factor * self.weight_decay, (1 - BETA2**number) ** 0.5
        if self.name != "radam":
            return Scalars(decay, unbias / factor, root, EPS)
        longest = 2 / (1 - BETA2) - 1
        length = longest - 2 * number * BETA2**number / (1 - BETA2**number)
        if length <= 5:  # too few gradients to know their size by: a step along the mean
            return Scalars(decay, unbias / factor, math.inf, 1.0)
        shrink = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return Scalars(decay, unbias / (factor * shrink**0.5), root, EPS / root)

    @lru_cache(maxsize=8)  # noqa: B019  rules are small frozen values
    def table(self) -> Tensor:
        """[steps, 4]: the scalars of every update."""
        return torch.tensor([self.scalars(number) for number in range(1, self.steps + 1)], dtype=torch.float32)


def update(p: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: float | Tensor, scalars: Scalars) -> None:
    """The update of `p`, `m` and `v` in place, by the equations at the head of this file."""
    m.mul_(BETA1).add_(g, alpha=1 - BETA1)
    v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
    moved = m / (v.sqrt() / scalars.root + scalars.eps)
    p.sub_((lr / scalars.mean) * moved + (lr * scalars.decay) * p)


class Optimiser:
    """The moments of a fleet's parameters [runs, ...]; each run has its own learning rate.

    torch's optimisers take no tensor of rates. On a CPU torch's fused kernel is called on each run's slice, with the
    runs of one rate together (`update` for RAdam, which has no such kernel), so that a run's numbers cannot depend on
    its fleet. On CUDA `update` is compiled into one kernel per parameter.
    """

    def __init__(self, parameters: dict[str, Tensor], lr: Sequence[float], rule: UpdateRule | None = None) -> None:
        self.parameters, self.rule = parameters, rule or UpdateRule()
        self.mean = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.square = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.device = next(iter(parameters.values())).device
        self.lr = torch.tensor(list(lr), dtype=torch.float32, device=self.device)
        self._table: Tensor | None = None
        self._groups: dict[float, list[int]] = {}
        for run, rate in enumerate(lr):
            self._groups.setdefault(rate, []).append(run)

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor], done: int | Tensor) -> None:
        """The update after `done` others (on CUDA a tensor, read by a captured graph)."""
        # The kernels read memory in order, and autograd may hand out a transposed gradient.
        gradients = {name: gradient.contiguous() for name, gradient in gradients.items()}
        kinds = self.parameters, gradients, self.mean, self.square
        if self.device.type == "cuda":
            self._compiled(kinds, torch.as_tensor(done))
            return
        scalars = self.rule.scalars(int(done) + 1)
        for rate, runs in self._groups.items():
            slices = [[tensors[name][run] for name in self.parameters for run in runs] for tensors in kinds]
            if self.rule.name == "radam":
                for p, g, m, v in zip(*slices, strict=True):
                    update(p, g, m, v, rate, scalars)
            else:
                self._fused(slices, rate, int(done))

    def _fused(self, slices: list[list[Tensor]], rate: float, done: int) -> None:
        p, g, m, v = slices
        counts, apart = [torch.tensor(float(done)) for _ in p], self.rule.name == "adamw"
        adam(
            p,
            g,
            m,
            v,
            [],
            counts,
            fused=True,
            decoupled_weight_decay=apart,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=rate * self.rule.factor(done + 1),
            weight_decay=self.rule.weight_decay,
            eps=EPS,
            maximize=False,
        )

    def _compiled(self, kinds: Sequence[dict[str, Tensor]], done: Tensor) -> None:
        if self._table is None:
            self._table = self.rule.table().to(self.device)
        row = self._table.index_select(0, done.clamp(max=len(self._table) - 1).view(1))
        scalars = Scalars(*row[0].unbind())
        for name in self.parameters:
            # As [runs, numbers], so that one compiled function takes parameters of every shape.
            compiled(update)(*(tensors[name].flatten(1) for tensors in kinds), self.lr[:, None], scalars)
