"""Logic gate network: layers of two-input gates, each neuron choosing one of sixteen, on binarised images.

    bits -> gates (x layers) -> sums of equal groups / group_tau -> classes

One gate is drawn per neuron and step. Metrics, at every evaluation: train_loss, gradient_norm; loss and accuracy on
validation and test data by the training forward and by the discretised network, whose gates are fixed to their argmax
(`.._argmax`); `gate_histogram` [16] (neurons by their argmax gate), `gate_perplexity`, `unused_gates` (of the sixteen,
those that no neuron has), `dead_gates` (share of neurons whose logits get no gradient at all over one pass through
the validation images). `--estimator soft` is the original: it mixes the gates instead of choosing.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

import decoupled_st as dst
from dst_lab.estimators import is_own
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.layers import compiled
from dst_lab.fleet.task import Parameters
from dst_lab.runs import Config, Defaults
from dst_lab.tasks import register
from dst_lab.tasks.gate_networks import EVALUATE, PASS_THROUGH, GateNetworks, nats


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
            "dataset": "cifar10",
            "layers": 4,
            "width": 12_000,
            "batch": 100,
            "steps": 200_000,
            "lr": 0.01,
            "group_tau": 100 / 3,
            "evaluate_every": 2_000,
        }


@register
class LogicGates(GateNetworks):
    config_type = LogicGatesConfig
    config: LogicGatesConfig

    def __init__(self, config: LogicGatesConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        if config.width % self.classes:
            raise ValueError(f"width must be a multiple of the {self.classes} classes, got width={config.width}")
        self.levels = {name: levels.flatten(1) for name, levels in self.levels.items()}
        values = self.levels["train"].shape[1]
        self.layers, self.widths = config.layers, (config.thresholds * values, *[config.width] * config.layers)
        declined = self._declined()
        self.packs = declined is None
        self.path = {"path": "plain", "declined": f"packed bits: {declined}"} if declined else {"path": "packed bits"}
        self._built: tuple[Tensor, dst.nn.LogicNetworks] | None = None

    def _declined(self) -> str | None:
        """Why packed bits do not train the estimator here; None where they do."""
        kind = self.config.estimator.kind
        if kind.draw is None:
            return f"{kind.name} relaxes the choice instead of drawing it"
        if is_own(kind):
            return f"{kind.name} is an estimator of your own"
        if not dst.nn.LogicNetworks.is_packed_on(self.device):
            return "there are no kernels here (Triton on CUDA, a C compiler on a CPU)"
        return None

    def initial(self, seed: int) -> Parameters:
        generator = torch.Generator().manual_seed(seed)
        widths = self.widths[1:]
        logits = {name: torch.randn(n, 16, generator=generator) for name, n in zip(self.names, widths, strict=True)}
        for tensor in logits.values():
            tensor[:, PASS_THROUGH] += self.config.residual
        return logits

    def fixed(self, seed: int) -> Parameters:
        return wiring_of(self.config, self.widths[0], seed)

    def _networks(self, parameters: Parameters) -> dst.nn.LogicNetworks:
        """The networks of a fleet, made once for its wiring."""
        wirings = [parameters[f"wiring.{i}"] for i in range(self.layers)]
        if self._built is None or self._built[0] is not wirings[0]:
            networks = dst.nn.LogicNetworks(self.widths[0], wirings, self.classes, self.config.group_tau)
            self._built = wirings[0], networks
        return self._built[1]

    def inputs(self, levels: Tensor) -> Tensor:
        """[..., bits] from levels [..., values], as `data.bits` spreads them."""
        ranks = torch.arange(self.config.thresholds, dtype=torch.uint8, device=levels.device)
        function = compiled(_above, dynamic=None) if levels.is_cuda else _above
        bits: Tensor = function(levels, ranks)
        return bits

    def scores(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        gates = [choose.categorical(parameters[name], parameters=True) for name in self.names]
        return self._networks(parameters)(x, gates, chosen=self.packs)

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        # The images of all runs one behind the other in memory, image by image: so they are packed without a copy.
        x = self.inputs(self.levels["train"][index.T.contiguous()]).transpose(0, 1)
        return nats(self.scores(parameters, x, choose), self.labels["train"][index])

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
        if not self.packs:
            return 4 * (10 * EVALUATE * neurons + 3 * 16 * neurons)
        samples = int(dict(self.config.estimator.options).get("samples", 1))
        # Noise, choices, their probabilities and gradients; wiring and who reads what; words; gradients of two layers.
        of_neurons = 6 * 16 * samples + 32 + EVALUATE // 32
        return 4 * (of_neurons * neurons + 2 * EVALUATE * self.config.width) + self.config.batch * self.widths[0]


def _above(levels: Tensor, ranks: Tensor) -> Tensor:
    return (levels.unsqueeze(-2) > ranks[:, None]).flatten(-2)


def wiring_of(config: LogicGatesConfig, bits: int, seed: int) -> Parameters:
    """`wiring.i` [2, width] of each layer of the network that begins with this seed and sees so many bits."""
    # torch's generator takes 32 bits of a seed, so these are the bits that `initial` draws its logits from. Wiring is
    # their remainders, which are not correlated with the logits; other bits would be other runs than those recorded.
    generator = torch.Generator().manual_seed(seed + 2**32)
    make = {"unique": dst.nn.unique_wiring, "random": dst.nn.random_wiring}[config.wiring]
    widths = [bits, *[config.width] * config.layers]
    return {f"wiring.{i}": make(before, config.width, generator) for i, before in enumerate(widths[:-1])}
