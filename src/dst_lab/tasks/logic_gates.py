"""Logic gate network: layers of two-input gates, each neuron choosing one of sixteen, on binarised images.

    bits -> gates (x layers) -> sums of equal groups / group_tau -> classes

One gate is drawn a neuron and step. Metrics, at every evaluation: train_loss, gradient_norm; loss and accuracy on
validation and test data by the training forward and by the discretised network, whose gates are fixed to their argmax
(`.._argmax`); `gate_histogram` [16] (neurons by their argmax gate), `gate_perplexity`, `unused_gates` (of the sixteen,
those that no neuron has), `dead_gates` (share of neurons whose logits get no gradient at all over one pass through
the validation images). `--estimator soft` is the original: it mixes the gates instead of choosing.
"""

from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.nn.logic import gate_coefficients, random_wiring, unique_wiring
from dst_lab import data
from dst_lab.configs import LogicGatesConfig
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.gates import apply_layer, consumers
from dst_lab.fleet.task import Choosers, Metrics, Parameters, Task, chunks, sum_per_run

EVALUATE = 512
PASS_THROUGH = 3
"""The gate "A": what a residual initialisation prefers."""


class LogicGates(Task):
    config_type = LogicGatesConfig
    pairs_a_lone_run = False  # no matmul over the run axis, and sums by sum_per_run
    config: LogicGatesConfig

    def __init__(self, config: LogicGatesConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load_levels(config.dataset, config.thresholds, source)
        self.classes = dataset.classes
        if config.width % self.classes:
            raise ValueError(f"width must be a multiple of the {self.classes} classes, got width={config.width}")
        self.splits = {
            name: (
                torch.from_numpy(data.bits(split.levels, config.thresholds)).to(device),
                torch.from_numpy(split.labels).to(device),
            )
            for name, split in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test))
        }
        self.images, bits = self.splits["train"][0].shape
        self.widths = (bits, *[config.width] * config.layers)
        self.coefficients = gate_coefficients(device)

    def initial(self, seed: int) -> Parameters:
        generator = torch.Generator().manual_seed(seed)
        logits = {f"logits.{i}": torch.randn(width, 16, generator=generator) for i, width in self._layers()}
        for tensor in logits.values():
            tensor[:, PASS_THROUGH] += self.config.residual
        return logits

    def fixed(self, seed: int) -> Parameters:
        generator = torch.Generator().manual_seed(seed + 2**32)
        make = {"unique": unique_wiring, "random": random_wiring}[self.config.wiring]
        tensors: Parameters = {}
        for i, width in self._layers():
            tensors[f"wiring.{i}"] = make(self.widths[i], width, generator)
            tensors[f"users.{i}"], tensors[f"starts.{i}"] = consumers(tensors[f"wiring.{i}"], self.widths[i])
        return tensors

    def _layers(self) -> list[tuple[int, int]]:
        return list(enumerate(self.widths[1:]))

    def scores(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        """[runs, images, classes] from bits [runs, images, bits]."""
        x = x.transpose(1, 2).float()
        for i, _ in self._layers():
            gates = choose.categorical(parameters[f"logits.{i}"])
            wires = (parameters[f"{kind}.{i}"] for kind in ("wiring", "users", "starts"))
            x = apply_layer(x, gates @ self.coefficients, *wires)
        sums = x.view(len(x), self.classes, -1, x.shape[-1]).sum(2)
        return sums.transpose(1, 2) / self.config.group_tau

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x, labels = (tensor[index] for tensor in self.splits["train"])
        return F.cross_entropy(self.scores(parameters, x, choose).transpose(1, 2), labels, reduction="none")

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        for split in ("validation", "test"):
            for stochastic, suffix in ((True, ""), (False, "_argmax")):
                loss, accuracy = self._measure(parameters, split, choosers, stochastic)
                metrics |= {f"{split}_loss{suffix}": loss, f"{split}_accuracy{suffix}": accuracy}
        chosen = torch.cat([parameters[f"logits.{i}"].argmax(-1) for i, _ in self._layers()], -1)
        counts = torch.stack([(chosen == gate).sum(-1) for gate in range(16)], -1).float()
        share = counts / counts.sum(-1, keepdim=True)
        metrics["gate_histogram"] = counts
        metrics["gate_perplexity"] = torch.special.entr(share).sum(-1).exp()
        metrics["unused_gates"] = (counts == 0).float().sum(-1)
        return metrics

    def _batches(self, split: str, runs: int, choosers: Choosers, stochastic: bool) -> Any:
        images, labels = self.splits[split]
        for index, weight in chunks(len(images), EVALUATE, self.device):
            x, target = images[index], labels[index]
            yield x.expand(runs, *x.shape), target.expand(runs, -1), weight, choosers(stochastic)

    def _measure(
        self, parameters: Parameters, split: str, choosers: Choosers, stochastic: bool
    ) -> tuple[Tensor, Tensor]:
        runs, images = len(parameters["logits.0"]), len(self.splits[split][1])
        loss = accuracy = torch.zeros(runs, device=self.device)
        for x, target, weight, choose in self._batches(split, runs, choosers, stochastic):
            scores = self.scores(parameters, x, choose)
            loss = loss + sum_per_run(F.cross_entropy(scores.transpose(1, 2), target, reduction="none") * weight)
            accuracy = accuracy + sum_per_run((scores.argmax(-1) == target) * weight)
        return loss / images, accuracy / images

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        names = [f"logits.{i}" for i, _ in self._layers()]
        runs = len(parameters["logits.0"])
        reached = [torch.zeros(parameters[name].shape[:2], dtype=torch.bool, device=self.device) for name in names]
        for x, target, weight, choose in self._batches("validation", runs, choosers, True):
            leaves = [parameters[name].detach().requires_grad_() for name in names]
            scores = self.scores({**parameters, **dict(zip(names, leaves, strict=True))}, x, choose)
            loss = (F.cross_entropy(scores.transpose(1, 2), target, reduction="none") * weight).sum(-1).sum()
            gradients = torch.autograd.grad(loss, leaves)
            reached = [seen | (g != 0).any(-1) for seen, g in zip(reached, gradients, strict=True)]
        return {"dead_gates": 1 - torch.cat(reached, -1).float().mean(-1)}

    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[Any]]:
        layers = [parameters[f"logits.{i}"].argmax(-1) for i, _ in self._layers()]
        counts = torch.stack([torch.stack([(c == gate).sum(-1) for gate in range(16)], -1) for c in layers], 1)
        return {"gates_by_layer": counts.to(torch.int32).cpu().numpy()}

    def bytes_per_run(self) -> int:
        neurons = sum(self.widths)
        return 4 * (6 * EVALUATE * neurons + 3 * 16 * neurons)
