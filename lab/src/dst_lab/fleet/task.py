"""What the loop asks of a task."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from decoupled_st import Estimator
from dst_lab.cards import ARGMAX
from dst_lab.data import Split
from dst_lab.estimators import may_be_zero
from dst_lab.fleet.chooser import Chooser, rule_of, ruled_parts
from dst_lab.runs import Config

Parameters: TypeAlias = dict[str, Tensor]
Metrics: TypeAlias = dict[str, Tensor]
Choosers: TypeAlias = Callable[[bool], Chooser]
"""stochastic? -> the choices of one more forward pass: drawn, or the argmax."""
FORWARDS = {"": True, ARGMAX: False}
"""What a metric's name ends in -> whether choices are drawn, as in training, or the argmax."""
GRAIN = 64
"""Images are evaluated in multiples of this, so that no kernel's vector tail falls inside a run (see `chunks`)."""


class Task(ABC):
    """A network and its data, for a fleet of runs that share all fields but seed, lr and temperatures."""

    config_type: ClassVar[type[Config]]
    images: int
    """How many there are to train on."""
    pairs_a_lone_run: ClassVar[bool] = True
    """True where a run alone on a CPU is trained twice over, because a run axis of 1 would round differently."""
    path: Mapping[str, str] = MappingProxyType({"path": "plain"})
    """How a step is computed, and why not in another way, as it is shown and recorded."""

    def __init__(self, config: Config, source: str | None, device: torch.device) -> None:
        self.config, self.device = config, device
        for name, ruled, part in ruled_parts(config.estimator):
            rule = rule_of(ruled)  # a sentence, before anything is trained
            if part == "f" and rule.takes_argmax and not may_be_zero(config.estimator.kind, name):
                raise ValueError(
                    f"the rule {ruled.to_json()} may set {name} to 0, the argmax, which "
                    f"{config.estimator.kind.label} has no form for: give the rule constants that keep it above 0"
                )

    @abstractmethod
    def initial(self, seed: int) -> Parameters:
        """One run's parameters, on the CPU, a function of its seed."""

    def fixed(self, seed: int) -> Parameters:
        """One run's tensors that are not trained."""
        return {}

    def buffers(self, seed: int) -> Parameters:
        """One run's tensors that a training pass changes by itself, such as running means: `loss` writes into them in
        place where gradients are recorded, and nowhere else."""
        return {}

    @abstractmethod
    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        """[runs, batch]: the loss of each image `index` [runs, batch] names."""

    @abstractmethod
    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        """Every metric of an evaluation, [runs, ...] each. `validation_loss` must be there: searches choose by it, and
        a run where it is not finite has diverged."""

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        """Metrics that cost more, at the evaluations that ask for them; {} elsewhere."""
        return {}

    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[np.generic]]:
        """Small arrays to keep of the trained runs, [runs, ...] each."""
        return {}

    def lasting(self, fixed: Parameters) -> Parameters:
        """What a kept network has besides its parameters, [runs, ...] each; `fixed` are those of all runs."""
        return {}

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: Estimator, deterministic: bool) -> nn.Module:
        """One run's network as an ordinary module, made of the parameters and what is `lasting`; `estimator` and
        `deterministic` are for the modules of `decoupled_st.nn` in it."""
        raise NotImplementedError(f"the task {cls.config_type.task} does not say how its network is put together")

    @abstractmethod
    def bytes_per_run(self) -> int:
        """About how much memory one more run takes, beyond its parameters and their moments."""


def pixels(split: Split, device: torch.device) -> Tensor:
    """[images, pixels], grey values from 0 to 1."""
    return torch.from_numpy(split.images.reshape(len(split), -1)).to(device).float() / 255


def sum_per_run(x: Tensor) -> Tensor:
    """[runs, n] -> [runs]. A lone row would be summed in another order than one of several, so it is summed twice."""
    return torch.cat([x, x]).sum(-1)[:1] if len(x) == 1 else x.sum(-1)


def chunks(images: int, size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """(indices, weights) of at most `size` images at a time; the last is filled up to the grain with weight 0."""
    for start in range(0, images, size):
        index = torch.arange(start, min(start + size, images), device=device)
        weight = torch.ones(len(index), device=device)
        missing = -len(index) % GRAIN
        if missing:
            index = torch.cat([index, index[-1:].expand(missing)])
            weight = torch.cat([weight, torch.zeros(missing, device=device)])
        yield index, weight
