"""Convolutional logic network: trees of two-input gates that slide over the image, and ORs as pools.

    bits -> (trees -> OR of 2 x 2) x .. -> trees -> sums of equal groups / group_tau -> classes

The networks are those of `dst.nn.logic_tree_net` by name, and a small one for images of any size. The runs of a fleet
are computed one after the other inside a step. The metrics are those of the task logic-gates. In the last share
`anneal` of the steps each gate is its argmax, in what is measured "by the training forward" too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

import decoupled_st as dst
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.task import Parameters
from dst_lab.runs import Config, Defaults
from dst_lab.tasks import register
from dst_lab.tasks.gate_networks import EVALUATE, GateNetworks, nats

SMALL = "small"
NETS = (SMALL, "cifar10-s", "cifar10-m", "cifar10-b", "cifar10-l", "cifar10-g", "mnist-s", "mnist-m", "mnist-l")
SHAPES = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
"""The images that the published networks take, by the beginning of their names."""


@dataclass(frozen=True, kw_only=True)
class LogicConvConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "logic-conv"
    defaults: ClassVar[Defaults] = {"soft": {"tau": 1.0}, "decoupled": {"tau_f": 0.0, "tau_b": 1.0}}
    lr: float = field(default=0.2, metadata={"help": "learning rate"})
    net: str = field(default=SMALL, metadata={"help": "small, cifar10-s, -m, -b, -l, -g, or mnist-s, -m, -l"})
    channels: int = field(default=16, metadata={"help": f"of the first layer of the network {SMALL}"})
    thresholds: int = field(default=3, metadata={"help": "bits per pixel and channel"})
    wiring: str = field(default="structured", metadata={"help": "structured or random"})
    group_tau: float = field(default=0.0, metadata={"help": "what the class sums are divided by; 0 the network's own"})
    anneal: float = field(default=0.25, metadata={"help": "the last share of the steps, in which gates are argmax"})
    augment: str = field(
        default="none", metadata={"help": "none, or mirror: train on every image and on its mirror image"}
    )
    optimiser: str = field(default="adamw", metadata={"help": "adam, adamw or radam"})
    weight_decay: float = field(default=0.002, metadata={"help": "of adamw"})
    lr_schedule: str = field(default="cosine", metadata={"help": "constant, or cosine: down to 0 at the end"})
    steps: int = field(default=250, metadata={"help": "training steps"})
    evaluate_every: int = field(default=50, metadata={"help": "steps between evaluations"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.net not in NETS:
            raise ValueError(f"net must be one of {', '.join(NETS)}, got {self.net!r}")
        if self.wiring not in ("structured", "random"):
            raise ValueError(f"wiring must be structured or random, got {self.wiring!r}")
        if self.augment not in ("none", "mirror"):
            raise ValueError(f"augment must be none or mirror, got {self.augment!r}")
        if self.group_tau < 0:
            raise ValueError(f"group_tau must be at least 0, got {self.group_tau}")
        if not 0 <= self.anneal <= 1:
            raise ValueError(f"anneal must be from 0 to 1, got {self.anneal}")

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, self.evaluate_every

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {
            "dataset": "cifar10",
            "net": "cifar10-s",
            "batch": 128,
            "steps": 16_000,
            "lr": 0.08,
            "augment": "mirror",
            "evaluate_every": 1_000,
        }


@dataclass(frozen=True)
class Given(dst.Estimator):
    """For layers whose "logits" are gates that were chosen before."""

    name: ClassVar[str] = "given"
    functions: ClassVar[Mapping[str, Callable[..., Tensor]]] = {"categorical": lambda logits, **options: logits}
    backward: ClassVar[str | None] = None


@register
class LogicConv(GateNetworks):
    config_type = LogicConvConfig
    path: Mapping[str, str] = MappingProxyType({"path": "network by network"})
    config: LogicConvConfig

    def __init__(self, config: LogicConvConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        levels = [k + 0.5 for k in range(config.thresholds)]
        self.module = build(config, self.shape, self.classes, levels, Given(), 0).to(device).requires_grad_(False)
        self.layers = len(self.module.trees)
        kinds = dst.nn.LogicConv2d, dst.nn.LogicTrees
        self.places = [place for place, layer in self.module.named_children() if isinstance(layer, kinds)]
        argmax = round(config.anneal * config.steps)
        self.argmax_from = config.steps - argmax if argmax else math.inf

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of the images."""
        return tuple(self.levels["train"].shape[1:])

    def initial(self, seed: int) -> Parameters:
        trees = zip(self.names, self.module.trees, strict=True)
        return {name: layer.logits.detach().flatten(0, 1).cpu().clone() for name, layer in trees}

    def fixed(self, seed: int) -> Parameters:
        drawn = build(self.config, self.shape, self.classes, [0.5] * self.config.thresholds, Given(), seed)
        return {f"wiring.{i}": layer.wiring for i, layer in enumerate(drawn.trees)}

    def inputs(self, levels: Tensor) -> Tensor:
        return levels  # the network has the thresholds

    def scores(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        gates = self._gates(parameters, choose)
        runs = len(gates[0])
        x = x if x.dim() == 5 else x.expand(runs, *x.shape)
        return torch.stack([self._scores_of_run(parameters, run, x[run], gates) for run in range(runs)])

    def _gates(self, parameters: Parameters, choose: Chooser) -> list[Tensor]:
        """[runs, gates, 16] of each layer: the estimator's choice, and at the end of training the argmax."""
        logits = [parameters[name] for name in self.names]
        chosen = [choose.categorical(l, parameters=True) for l in logits]
        if choose.source is None:
            return chosen
        is_late = choose.source.step >= self.argmax_from  # on CUDA a tensor, which a captured graph reads
        if is_late is False:
            return chosen
        argmax = Chooser(choose.choice, choose.taus, None, choose.rules)
        fixed = [argmax.categorical(l, parameters=True) for l in logits]
        late = torch.as_tensor(is_late)
        return [torch.where(late, one, other) for one, other in zip(fixed, chosen, strict=True)]

    def _scores_of_run(self, parameters: Parameters, run: int, x: Tensor, gates: list[Tensor]) -> Tensor:
        tensors = {}
        for i, (place, layer) in enumerate(zip(self.places, self.module.trees, strict=True)):
            tensors[f"{place}.logits"] = gates[i][run].view(layer.logits.shape)
            tensors[f"{place}.wiring"] = parameters[f"wiring.{i}"][run]
        return functional_call(self.module, tensors, (x,))

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        return nats(self.scores(parameters, self.levels["train"][index], choose), self.labels["train"][index])

    def lasting(self, fixed: Parameters) -> Parameters:
        """The wiring of each layer, the images' shape, and how many classes there are."""
        runs = len(fixed["wiring.0"])
        sizes = {"shape": torch.tensor(self.shape), "classes": torch.tensor(self.classes)}
        return fixed | {name: size.expand(runs, *size.shape) for name, size in sizes.items()}

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """Images [images, channels, height, width] of values from 0 to 1 in, class scores out."""
        assert isinstance(config, LogicConvConfig)
        levels = [k / (config.thresholds + 1) for k in range(1, config.thresholds + 1)]
        network = build(config, tuple(tensors["shape"].tolist()), int(tensors["classes"]), levels, estimator, 0)
        for i, layer in enumerate(network.trees):
            layer.deterministic = deterministic
            layer.wiring.copy_(tensors[f"wiring.{i}"])
            layer.logits.data.copy_(tensors[f"logits.{i}"].view(layer.logits.shape))
        return network

    def bytes_per_run(self) -> int:
        """By fused kernels: values behind the pools, which of its positions each is from, and gradients."""
        values, size = 0, self.shape[1:]
        for layer in self.module:
            if isinstance(layer, dst.nn.LogicConv2d):
                size = layer.output_size(torch.empty(0, layer.channels_in, *size, device="meta"))
                size = tuple(n // 2 for n in size)  # every convolution has a pool behind it
                values += layer.channels * math.prod(size)
            elif isinstance(layer, dst.nn.LogicTrees):
                values += layer.out_features
        gates = sum(layer.logits.numel() for layer in self.module.trees)
        return 12 * EVALUATE * values + 4 * 8 * gates


def build(
    config: LogicConvConfig,
    shape: tuple[int, ...],
    classes: int,
    thresholds: list[float],
    estimator: dst.Estimator,
    seed: int,
) -> dst.nn.LogicTreeNetwork:
    """The network of a config for images of this shape, on the CPU; the seed decides its wiring."""
    options: Any = {"generator": torch.Generator().manual_seed(seed), "device": "cpu"}
    wiring: Any = config.wiring
    if config.net == SMALL:
        k, (channels, height, width) = config.channels, shape
        network = dst.nn.LogicTreeNetwork(
            dst.nn.Thermometer(thresholds),
            dst.nn.LogicConv2d(len(thresholds) * channels, k, estimator, wiring=wiring, **options),
            dst.nn.OrPool2d(),
            dst.nn.LogicConv2d(k, 3 * k, estimator, wiring=wiring, **options),
            dst.nn.OrPool2d(),
            nn.Flatten(),
            dst.nn.LogicTrees(3 * k * (height // 4) * (width // 4), 40 * k, estimator, **options),
            dst.nn.GroupSum(classes, 0.3 * (40 * k / classes) ** 0.5),
        )
    else:
        expected = next(size for name, size in SHAPES.items() if config.net.startswith(name))
        if shape != expected:
            given, wanted = (" x ".join(map(str, size)) for size in (shape, expected))
            raise ValueError(f"{config.net} takes images of {wanted}, and those of {config.dataset} are {given}")
        network = dst.nn.logic_tree_net(config.net, estimator, thresholds=thresholds, wiring=wiring, **options)
    if config.group_tau:
        cast(dst.nn.GroupSum, network[-1]).tau = config.group_tau
    return network
