"""Stochastic binary network: a classifier whose hidden neurons are 0 or 1.

    pixels -> linear -> binary -> linear -> binary -> linear -> classes

Metrics, at every evaluation: train_loss, gradient_norm (over all parameters, of the last batch); loss and accuracy on
validation and test data, by the training forward (`validation_loss`, ..) and by the deterministic one
(`validation_loss_argmax`, ..). At every `diagnose_every`-th evaluation and at the end: `inactive` (share of hidden
neurons whose mean |dL/dl| over the validation images lies below 1% of the run's mean) and `inactive_below` (the same
against each absolute threshold in THRESHOLDS).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst
from decoupled_st.diagnostics import active_fraction
from dst_lab import data
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.layers import initial_stack, linear, stack_modules
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, Task, chunks, pixels
from dst_lab.runs import Config, Defaults
from dst_lab.tasks import register

THRESHOLDS = tuple(10.0 ** (half / 2) for half in range(-16, -1))
"""1e-8 to 1e-1, two per decade."""


@dataclass(frozen=True, kw_only=True)
class StochasticBinaryConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "stochastic-binary"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 0.1, "tau_b": 0.7},
        "softmax_ste": {"tau": 0.2},
        "gumbel_ste": {"tau": 0.5},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=3e-3, metadata={"help": "learning rate"})
    hidden: tuple[int, ...] = field(default=(64, 64), metadata={"help": "binary neurons in each hidden layer"})
    epochs: int = field(default=12, metadata={"help": "passes over the training images"})
    diagnose_every: int = field(default=10, metadata={"help": "evaluations between measurements of activity"})

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.epochs * (images // self.batch), images // self.batch

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"dataset": "fashion-mnist", "hidden": (200, 200), "batch": 128, "epochs": 100, "lr": 1e-3}


EVALUATE = 1024


@register
class StochasticBinary(Task):
    config_type = StochasticBinaryConfig
    config: StochasticBinaryConfig

    def __init__(self, config: StochasticBinaryConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load(config.dataset, source)
        self.splits = {
            name: (
                pixels(split, device),
                torch.from_numpy(split.labels).to(device),
            )
            for name, split in dataset.splits.items()
        }
        self.images, inputs = self.splits["train"][0].shape
        self.widths = (inputs, *config.hidden, dataset.classes)

    def initial(self, seed: int) -> Parameters:
        return initial_stack("", self.widths, torch.Generator().manual_seed(seed))

    def scores(self, parameters: Parameters, first: Tensor, choose: Chooser) -> tuple[Tensor, list[Tensor]]:
        """Class scores from the first layer's log-odds, and the log-odds of each hidden layer on the way."""
        hidden = [first]
        for i in range(1, len(self.config.hidden)):
            hidden.append(linear(choose.binary(hidden[-1]), parameters, str(i)))
        return linear(choose.binary(hidden[-1]), parameters, str(len(self.config.hidden))), hidden

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x, labels = (tensor[index] for tensor in self.splits["train"])
        scores, _ = self.scores(parameters, linear(x, parameters, "0"), choose)
        return F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        for split in ("validation", "test"):
            images, labels = self.splits[split]
            nothing = torch.zeros(len(parameters["0.bias"]), device=self.device)
            sums = {f"{split}_{name}{suffix}": nothing for name in ("loss", "accuracy") for suffix in FORWARDS}
            for index, weight in chunks(len(images), EVALUATE, self.device):
                first = linear(images[index], parameters, "0")  # the same for every way to choose
                target = labels[index].expand(len(first), -1)
                for suffix, stochastic in FORWARDS.items():
                    scores, _ = self.scores(parameters, first, choosers(stochastic))
                    loss = F.cross_entropy(scores.transpose(1, 2), target, reduction="none")
                    sums[f"{split}_loss{suffix}"] = sums[f"{split}_loss{suffix}"] + (loss * weight).sum(-1)
                    right = (scores.argmax(-1) == target) * weight
                    sums[f"{split}_accuracy{suffix}"] = sums[f"{split}_accuracy{suffix}"] + right.sum(-1)
            metrics |= {name: total / len(images) for name, total in sums.items()}
        return metrics

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        steps, every = self.config.steps_of(self.images)
        if step != steps and (step // every) % self.config.diagnose_every:
            return {}
        activity = self._activity(parameters, choosers)
        active = partial(active_fraction, activity.unsqueeze(1), run_dims=1)
        return {"inactive": 1 - active(0.01), "inactive_below": 1 - active(THRESHOLDS, relative=False)}

    def _activity(self, parameters: Parameters, choosers: Choosers) -> Tensor:
        """[runs, hidden neurons]: the mean over validation images of |dL/dl|, L the loss of that image alone."""
        images, labels = self.splits["validation"]
        total = torch.zeros(len(parameters["0.bias"]), sum(self.config.hidden), device=self.device)
        for index, weight in chunks(len(images), EVALUATE, self.device):
            first = linear(images[index], parameters, "0").requires_grad_()
            scores, hidden = self.scores(parameters, first, choosers(True))
            target = labels[index].expand(len(scores), -1)
            loss = F.cross_entropy(scores.transpose(1, 2), target, reduction="none").sum(-1).sum()
            gradients = torch.autograd.grad(loss, hidden)
            total = total + torch.cat([(g.abs() * weight.view(1, -1, 1)).sum(1) for g in gradients], -1)
        return total / len(images)

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """Pixels [..., inputs] from 0 to 1 in, class scores out."""
        return nn.Sequential(*stack_modules(tensors, "", lambda: dst.nn.Binary(estimator, deterministic=deterministic)))

    def bytes_per_run(self) -> int:
        neurons = sum(self.widths)
        return 4 * (8 * self.config.batch * neurons + 6 * EVALUATE * neurons)
