"""What the tasks share whose networks are made of gates: images as levels, losses, and the gates that are chosen."""

from abc import abstractmethod
from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.diagnostics import gate_histogram, perplexity_of_counts
from dst_lab import data
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, Task, chunks, sum_per_run

EVALUATE = 512
PASS_THROUGH = 3
"""The gate "A"."""


class GateNetworks(Task):
    """The config has `thresholds` and `augment`; layer i of `layers` has the parameter `logits.i` [gates, 16]."""

    config: Any
    layers: int
    pairs_a_lone_run = False  # no matmul over the run axis, and sums by sum_per_run

    def __init__(self, config: Any, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load_levels(config.dataset, config.thresholds, source)
        self.classes = dataset.classes
        splits = dict(dataset.splits)
        if config.augment == "mirror":
            train = splits["train"]
            splits["train"] = train + data.Split(train.images[..., ::-1].copy(), train.labels)
        # Levels, a byte per value: as bits the largest networks' images would be a byte per threshold and value.
        self.levels = {name: torch.from_numpy(split.images).to(device) for name, split in splits.items()}
        self.labels = {name: torch.from_numpy(split.labels).to(device) for name, split in splits.items()}
        self.images = len(splits["train"])

    @property
    def names(self) -> list[str]:
        """The parameters, layer by layer."""
        return [f"logits.{i}" for i in range(self.layers)]

    @abstractmethod
    def inputs(self, levels: Tensor) -> Tensor:
        """What `scores` takes, from levels [..., images, *their shape]."""

    @abstractmethod
    def scores(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        """[runs, images, classes] from images of each run, or from the same images for all runs."""

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        for split in ("validation", "test"):
            for suffix, stochastic in FORWARDS.items():
                loss, accuracy = self._measure(parameters, split, choosers, stochastic)
                metrics |= {f"{split}_loss{suffix}": loss, f"{split}_accuracy{suffix}": accuracy}
        # What is not a number stands for a run that has diverged: it must not stop the others.
        logits = [parameters[name].nan_to_num() for name in self.names]
        counts = gate_histogram(logits, run_dims=1).float()
        metrics["gate_histogram"] = counts
        metrics["gate_perplexity"] = perplexity_of_counts(counts)
        metrics["unused_gates"] = (counts == 0).float().sum(-1)
        return metrics

    def _measure(
        self, parameters: Parameters, split: str, choosers: Choosers, stochastic: bool
    ) -> tuple[Tensor, Tensor]:
        runs, labels = len(parameters[self.names[0]]), self.labels[split]
        loss = accuracy = torch.zeros(runs, device=self.device)
        for index, weight in chunks(len(labels), EVALUATE, self.device):
            scores = self.scores(parameters, self.inputs(self.levels[split][index]), choosers(stochastic))
            loss = loss + sum_per_run(nats(scores, labels[index]) * weight)
            accuracy = accuracy + sum_per_run((scores.argmax(-1) == labels[index]) * weight)
        return loss / len(labels), accuracy / len(labels)

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        return {"dead_gates": 1 - torch.cat(self._reached(parameters, choosers), -1).float().mean(-1)}

    def _reached(self, parameters: Parameters, choosers: Choosers) -> list[Tensor]:
        """[runs, neurons] per layer: True where a neuron's logits got any gradient over the validation images."""
        labels = self.labels["validation"]
        shapes = [parameters[name].shape[:2] for name in self.names]
        reached = [torch.zeros(shape, dtype=torch.bool, device=self.device) for shape in shapes]
        for index, weight in chunks(len(labels), EVALUATE, self.device):
            leaves = [parameters[name].detach().requires_grad_() for name in self.names]
            own = {**parameters, **dict(zip(self.names, leaves, strict=True))}
            scores = self.scores(own, self.inputs(self.levels["validation"][index]), choosers(True))
            loss = nats(scores, labels[index])
            gradients = torch.autograd.grad((loss * weight).sum(-1).sum(), leaves)
            reached = [before | (g != 0).any(-1) for before, g in zip(reached, gradients, strict=True)]
        return reached

    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[Any]]:
        layers = [parameters[name].argmax(-1) for name in self.names]
        counts = torch.stack([torch.stack([(c == gate).sum(-1) for gate in range(16)], -1) for c in layers], 1)
        return {"gates_by_layer": counts.to(torch.int32).cpu().numpy()}


def nats(scores: Tensor, labels: Tensor) -> Tensor:
    """[runs, images]: the cross-entropy of scores [runs, images, classes]; labels may be shared by the runs."""
    return F.cross_entropy(scores.transpose(1, 2), labels.expand(len(scores), -1), reduction="none")
