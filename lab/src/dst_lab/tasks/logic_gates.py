"""Logic gate network: layers of two-input gates, each neuron choosing one of sixteen, on binarised images.

    bits -> gates (x layers) -> sums of equal groups / group_tau -> classes

One gate is drawn per neuron and step. Metrics, at every evaluation: train_loss, gradient_norm; loss and accuracy on
validation and test data by the training forward and by the discretised network, whose gates are fixed to their argmax
(`.._argmax`); `gate_histogram` [16] (neurons by their argmax gate), `gate_perplexity`, `unused_gates` (of the sixteen,
those that no neuron has), `dead_gates` (share of neurons whose logits get no gradient at all over one pass through
the validation images). `--estimator soft` is the original: it mixes the gates instead of choosing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.diagnostics import gate_histogram, perplexity_of_counts
from decoupled_st.nn.logic.gates import PASS_THROUGH, gate_coefficients
from decoupled_st.nn.logic.wiring import random_wiring, unique_wiring
from dst_lab import data
from dst_lab.fleet.chooser import Chooser, Draws, declined
from dst_lab.fleet.layers.gates import apply_layer, consumers
from dst_lab.fleet.rules import by_place
from dst_lab.fleet.task import (
    FORWARDS,
    Choosers,
    Declined,
    Fused,
    Metrics,
    Norm,
    Parameters,
    Task,
    chunks,
    sum_per_run,
)
from dst_lab.runs import Config, Defaults
from dst_lab.tasks import register


@dataclass(frozen=True, kw_only=True)
class LogicGatesConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "logic-gates"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 0.1, "tau_b": 2.0},
        "softmax_ste": {"tau": 0.5},
        "gumbel_ste": {"tau": 0.5},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=0.03, metadata={"help": "learning rate"})
    thresholds: int = field(default=3, metadata={"help": "bits per pixel and channel"})
    layers: int = field(default=2, metadata={"help": "layers of gates"})
    width: int = field(default=640, metadata={"help": "gates in a layer"})
    wiring: str = field(default="unique", metadata={"help": "unique or random"})
    group_tau: float = field(default=10 / 3, metadata={"help": "what the class sums are divided by"})
    residual: float = field(default=0.0, metadata={"help": "added to the logit of the gate that passes A through"})
    augment: str = field(
        default="none",
        metadata={"help": "none, or mirror: train on every image and on its mirror image", "omit": True},
    )
    steps: int = field(default=250, metadata={"help": "training steps"})
    evaluate_every: int = field(default=25, metadata={"help": "steps between evaluations"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wiring not in ("unique", "random"):
            raise ValueError(f"wiring must be unique or random, got {self.wiring!r}")
        if self.augment not in ("none", "mirror"):
            raise ValueError(f"augment must be none or mirror, got {self.augment!r}")
        if not self.group_tau > 0:
            raise ValueError(f"group_tau must be above 0, got {self.group_tau}")

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, self.evaluate_every

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {
            "dataset": "cifar10", "layers": 4, "width": 12_000, "batch": 100, "steps": 200_000, "lr": 0.01,
            "group_tau": 100 / 3, "evaluate_every": 2_000,
        }  # fmt: skip


if TYPE_CHECKING:
    from dst_lab.fleet.loop import Fleet

Scorer: TypeAlias = Callable[[Tensor, Chooser], Tensor]
"""(indices of images, choices) -> class scores [runs, images, classes]."""
EVALUATE = 512
PATH = "packed bits"
PACKED = 128
"""Images of a packed backward pass."""
AT_ONCE = 2**25
"""Bits that are packed at a time."""


@register
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
        splits = dict(dataset.splits)
        if config.augment == "mirror":
            train = splits["train"]
            splits["train"] = train + data.LevelSplit(train.levels[..., ::-1].copy(), train.labels)
        # Levels, a byte per value: as bits the largest networks' images would be a byte per threshold and value.
        self.levels = {name: torch.from_numpy(split.levels).flatten(1).to(device) for name, split in splits.items()}
        self.labels = {name: torch.from_numpy(split.labels).to(device) for name, split in splits.items()}
        self.images, values = self.levels["train"].shape
        self.widths = (config.thresholds * values, *[config.width] * config.layers)
        self.coefficients = gate_coefficients(device)
        self.packs = self._declined() is None

    def _declined(self) -> str | None:
        """Why packed bits do not train the estimator; None where they do."""
        images = max(self.config.batch, EVALUATE)
        if self.device.type == "cuda" and self.config.width * images >= 2**31:
            return f"{self.config.width} gates times {images} images are more than 32-bit indices reach"
        return declined(self.config.estimator, tuple(self.kernels.SURROGATES))

    @cached_property
    def kernels(self) -> Any:
        """The module of the device: the same names on both."""
        if self.device.type == "cuda":
            from dst_lab.fleet.cuda import packed as on_cuda

            return on_cuda
        from dst_lab.fleet.cpu import packed as on_cpu

        return on_cpu

    @cached_property
    def words(self) -> Parameters:
        """The images of each split with their bits packed into words."""
        rows = max(1, AT_ONCE // self.widths[0])
        return {
            name: torch.cat([self.kernels.pack_features(self._bits(part)) for part in torch.split(levels, rows)])
            for name, levels in self.levels.items()
        }

    def _bits(self, levels: Tensor) -> Tensor:
        """[..., bits] from levels [..., values], as `data.bits` spreads them."""
        ranks = torch.arange(self.config.thresholds, dtype=torch.uint8, device=levels.device)
        return (levels.unsqueeze(-2) > ranks[:, None]).flatten(-2)

    def _network(self, parameters: Parameters) -> Any:
        return self.kernels.PackedLogic(parameters, self.config.layers, self.classes)

    def initial(self, seed: int) -> Parameters:
        generator = torch.Generator().manual_seed(seed)
        logits = {f"logits.{i}": torch.randn(width, 16, generator=generator) for i, width in self._layers()}
        for tensor in logits.values():
            tensor[:, PASS_THROUGH] += self.config.residual
        return logits

    def fixed(self, seed: int) -> Parameters:
        tensors = wiring_of(self.config, self.widths[0], seed)
        for i, _ in self._layers():
            tensors[f"users.{i}"], tensors[f"starts.{i}"] = consumers(tensors[f"wiring.{i}"], self.widths[i])
        return tensors

    def _layers(self) -> list[tuple[int, int]]:
        return list(enumerate(self.widths[1:]))

    def scores(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        """[runs, images, classes] from bits [runs, images, bits]."""
        x = x.transpose(1, 2).float()
        for i, _ in self._layers():
            gates = choose.categorical(parameters[f"logits.{i}"], parameters=True)
            wires = (parameters[f"{kind}.{i}"] for kind in ("wiring", "users", "starts"))
            x = apply_layer(x, gates @ self.coefficients, *wires)
        sums = x.view(len(x), self.classes, -1, x.shape[-1]).sum(2)
        return sums.transpose(1, 2) / self.config.group_tau

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x, labels = self._bits(self.levels["train"][index]), self.labels["train"][index]
        return F.cross_entropy(self.scores(parameters, x, choose).transpose(1, 2), labels, reduction="none")

    def fused(self, fleet: "Fleet") -> Fused | Declined:
        """Packed bits, for the estimators that choose."""
        if reason := self._declined():
            return Declined(PATH, reason)
        kernels, labels = self.kernels, self.labels["train"]
        for tensors in (fleet.parameters, fleet.optimiser.mean, fleet.optimiser.square):
            kernels.join(tensors)
        network = self._network({**fleet.parameters, **fleet.fixed})
        lr = fleet.optimiser.lr
        # On CUDA the step is a tensor, which a captured graph reads; what rules set is computed inside the graph.
        lasts = isinstance(fleet.now, Tensor) and not fleet.rules
        lasting = self._draws(fleet.parameters, fleet.chooser(), lr) if lasts else None

        def step() -> Norm:
            draws = lasting or self._draws(fleet.parameters, fleet.chooser(), lr)
            done = network.forward(kernels.pack(self.words["train"], fleet.index), draws)
            counts = network.counts(done)
            slopes = kernels.loss_slopes(counts, labels, fleet.index, self.config.group_tau, fleet.loss_sum)
            squares = network.backward(done, slopes, draws, fleet.optimiser)
            if self.device.type == "cpu":
                fleet.watch(fleet.loss_sum)
            return lambda: sum_per_run(squares.transpose(0, 1).flatten(1)).sqrt()

        return Fused(PATH, step)

    def _draws(self, parameters: Parameters, choose: Chooser, runs: Tensor) -> Draws:
        """What the kernels are told of a pass, with the temperatures that rules set for each layer."""
        logits = [parameters[f"logits.{i}"] for i, _ in self._layers()]
        ruled = by_place(choose.rules, logits, observe=choose.observe) if choose.rules else None
        return Draws.of(choose, runs, ruled, tuple(self.kernels.SURROGATES))

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        for split in ("validation", "test"):
            for suffix, stochastic in FORWARDS.items():
                loss, accuracy = self._measure(parameters, split, choosers, stochastic)
                metrics |= {f"{split}_loss{suffix}": loss, f"{split}_accuracy{suffix}": accuracy}
        # What is not a number stands for a run that has diverged: it must not stop the others.
        logits = [parameters[f"logits.{i}"].nan_to_num() for i, _ in self._layers()]
        counts = gate_histogram(logits, run_dims=1).float()
        metrics["gate_histogram"] = counts
        metrics["gate_perplexity"] = perplexity_of_counts(counts)
        metrics["unused_gates"] = (counts == 0).float().sum(-1)
        return metrics

    def _measure(
        self, parameters: Parameters, split: str, choosers: Choosers, stochastic: bool
    ) -> tuple[Tensor, Tensor]:
        runs, labels = len(parameters["logits.0"]), self.labels[split]
        loss = accuracy = torch.zeros(runs, device=self.device)
        score = self._packed_scorer(parameters, split) if self.packs else self._scorer(parameters, split)
        for index, weight in chunks(len(labels), EVALUATE, self.device):
            scores, target = score(index, choosers(stochastic)), labels[index].expand(runs, -1)
            loss = loss + sum_per_run(F.cross_entropy(scores.transpose(1, 2), target, reduction="none") * weight)
            accuracy = accuracy + sum_per_run((scores.argmax(-1) == target) * weight)
        return loss / len(labels), accuracy / len(labels)

    def _scorer(self, parameters: Parameters, split: str) -> Scorer:
        levels, runs = self.levels[split], len(parameters["logits.0"])
        return lambda index, choose: self.scores(parameters, self._bits(levels[index]).expand(runs, -1, -1), choose)

    def _packed_scorer(self, parameters: Parameters, split: str) -> Scorer:
        network = self._network(parameters)
        like = torch.empty(network.runs, device=self.device)
        # Gates are counted, so a broken logit would not show by itself.
        whole = [parameters[f"logits.{i}"].isfinite().flatten(1).all(1) for i, _ in self._layers()]
        broken = ~torch.stack(whole).all(0)

        def score(index: Tensor, choose: Chooser) -> Tensor:
            done = network.forward(
                self.kernels.pack(self.words[split], index[None]), self._draws(parameters, choose, like)
            )
            scores = network.counts(done)[..., : len(index)].transpose(1, 2) / self.config.group_tau
            return scores.masked_fill(broken.view(-1, 1, 1), math.nan)

        return score

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        reached = self._packed_reached(parameters, choosers) if self.packs else self._reached(parameters, choosers)
        return {"dead_gates": 1 - torch.cat(reached, -1).float().mean(-1)}

    def _reached(self, parameters: Parameters, choosers: Choosers) -> list[Tensor]:
        """[runs, neurons] per layer: True where a neuron's logits got any gradient over the validation images."""
        names = [f"logits.{i}" for i, _ in self._layers()]
        labels = self.labels["validation"]
        reached = [torch.zeros(parameters[name].shape[:2], dtype=torch.bool, device=self.device) for name in names]
        for index, weight in chunks(len(labels), EVALUATE, self.device):
            leaves = [parameters[name].detach().requires_grad_() for name in names]
            score = self._scorer({**parameters, **dict(zip(names, leaves, strict=True))}, "validation")
            scores = score(index, choosers(True)).transpose(1, 2)
            loss = F.cross_entropy(scores, labels[index].expand(len(scores), -1), reduction="none")
            gradients = torch.autograd.grad((loss * weight).sum(-1).sum(), leaves)
            reached = [before | (g != 0).any(-1) for before, g in zip(reached, gradients, strict=True)]
        return reached

    def _packed_reached(self, parameters: Parameters, choosers: Choosers) -> list[Tensor]:
        kernels, network = self.kernels, self._network(parameters)
        labels = self.labels["validation"]
        total = torch.zeros(network.runs, device=self.device)
        reached = torch.zeros(self.config.layers, network.runs, self.config.width, dtype=torch.bool, device=self.device)
        for images in torch.split(torch.arange(len(labels), device=self.device), EVALUATE):
            choose = choosers(True)
            draws = self._draws(parameters, choose, total)
            for index in torch.split(images, PACKED):
                done = network.forward(kernels.pack(self.words["validation"], index[None], PACKED), draws)
                of_runs = index.expand(network.runs, -1).contiguous()
                slopes = kernels.loss_slopes(network.counts(done), labels, of_runs, self.config.group_tau, total)
                reached |= network.backward(done, slopes, draws, None) > 0
        return list(reached)

    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[Any]]:
        layers = [parameters[f"logits.{i}"].argmax(-1) for i, _ in self._layers()]
        counts = torch.stack([torch.stack([(c == gate).sum(-1) for gate in range(16)], -1) for c in layers], 1)
        return {"gates_by_layer": counts.to(torch.int32).cpu().numpy()}

    def lasting(self, fixed: Parameters) -> Parameters:
        """The wiring of each layer, and into how many classes the last is summed."""
        wires = {name: tensor for name, tensor in fixed.items() if name.startswith("wiring.")}
        runs = len(next(iter(fixed.values())))
        return {**wires, "classes": torch.full((runs,), self.classes), "bits": torch.full((runs,), self.widths[0])}

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """Bits [..., inputs], 0 or 1, in (see `data.bits`), class scores out."""
        assert isinstance(config, LogicGatesConfig)
        inputs, layers = int(tensors["bits"]), []
        for i in range(config.layers):
            layer = dst.nn.LogicLayer(
                inputs, config.width, estimator, wiring=tensors[f"wiring.{i}"], deterministic=deterministic
            )
            layer.logits.data.copy_(tensors[f"logits.{i}"])
            layers.append(layer)
            inputs = config.width
        return nn.Sequential(*layers, dst.nn.GroupSum(int(tensors["classes"]), tau=config.group_tau))

    def bytes_per_run(self) -> int:
        neurons = sum(self.widths)
        if self.packs:
            # Gradients of a layer, packed activations, indices; class scores of an evaluation.
            return 4 * neurons * (2 * self.config.batch + 80) + 32 * EVALUATE * self.classes
        return 4 * (6 * EVALUATE * neurons + 3 * 16 * neurons)


def wiring_of(config: LogicGatesConfig, bits: int, seed: int) -> Parameters:
    """`wiring.i` [2, width] of each layer of the network that begins with this seed and sees so many bits."""
    # torch's generator takes 32 bits of a seed, so these are the bits that `initial` draws its logits from. Wiring is
    # their remainders, which are not correlated with the logits; other bits would be other runs than those recorded.
    generator = torch.Generator().manual_seed(seed + 2**32)
    make = {"unique": unique_wiring, "random": random_wiring}[config.wiring]
    widths = [bits, *[config.width] * config.layers]
    return {f"wiring.{i}": make(before, config.width, generator) for i, before in enumerate(widths[:-1])}
