"""Categorical autoencoder: images through a handful of categorical codes and back.

    pixels -> linear, ReLU (x2) -> latents x classes -> one-hot codes -> linear, ReLU (x2) -> pixels

Loss: binary cross-entropy against the grey values, summed over pixels, in nats per image. Metrics, at every evaluation:
train_loss, gradient_norm; loss on validation and test data by the training forward and by the deterministic one
(`.._argmax`); `perplexity` of each latent's codes over the validation images. Where `snr_every` > 0: `snr` (gradient
signal-to-noise of the logit layer's parameters over `snr_passes` passes on the first batch, averaged), `snr_median` and
`snr_constant` (how many of them did not vary). Artefacts: `inputs`, `reconstructions` and `codes` of the first eight
validation images.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import Tensor

from decoupled_st.diagnostics import gradient_snr, perplexity_of_counts
from dst_lab import data
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.layers import pixel_nats
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, chunks, pixels
from dst_lab.runs import Config, Defaults
from dst_lab.tasks import register
from dst_lab.tasks.coded_images import CodedImages


@dataclass(frozen=True, kw_only=True)
class CategoricalAutoencoderConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "categorical-autoencoder"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 2.0, "tau_b": 0.5},
        "softmax_ste": {"tau": 3.0},
        "gumbel_ste": {"tau": 2.0},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=2e-3, metadata={"help": "learning rate"})
    hidden: tuple[int, ...] = field(default=(64, 32), metadata={"help": "widths of the encoder; mirrored to decode"})
    latents: int = field(default=4, metadata={"help": "categorical variables"})
    classes: int = field(default=8, metadata={"help": "classes of each"})
    epochs: int = field(default=30, metadata={"help": "passes over the training images"})
    snr_every: int = field(default=0, metadata={"help": "evaluations between measurements of SNR; 0: none", "least": 0})
    snr_passes: int = field(default=1024, metadata={"help": "passes for one SNR", "least": 2})

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.epochs * (images // self.batch), images // self.batch

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"dataset": "mnist", "hidden": (512, 256), "batch": 200, "epochs": 160, "lr": 1e-3}


EVALUATE = 1024
SHOWN = 8


@register
class CategoricalAutoencoder(CodedImages):
    config_type = CategoricalAutoencoderConfig
    config: CategoricalAutoencoderConfig

    def __init__(self, config: CategoricalAutoencoderConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load(config.dataset, source)
        self.splits = {name: pixels(split, device) for name, split in dataset.splits.items()}
        self.images, inputs = self.splits["train"].shape
        self.set_inputs(inputs)

    def code(self, parameters: Parameters, features: Tensor, choose: Chooser) -> Tensor:
        """[runs, images, latents, classes], one-hot."""
        return choose.categorical(self.logits_of(parameters, features))

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x = self.splits["train"][index]
        return self._nats(parameters, self.code(parameters, self.features(parameters, x), choose), x)

    def _nats(self, parameters: Parameters, code: Tensor, x: Tensor) -> Tensor:
        return pixel_nats(self.decode(parameters, code), x)

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        runs, (latents, classes) = len(parameters["encoder.0.bias"]), (self.config.latents, self.config.classes)
        for split in ("validation", "test"):
            images = self.splits[split]
            losses = dict.fromkeys(FORWARDS, torch.zeros(runs, device=self.device))
            counts = torch.zeros(runs, latents, classes, device=self.device)
            for index, weight in chunks(len(images), EVALUATE, self.device):
                x = images[index]
                features = self.features(parameters, x)  # the same for every way to choose
                for suffix, stochastic in FORWARDS.items():
                    code = self.code(parameters, features, choosers(stochastic))
                    losses[suffix] = losses[suffix] + (self._nats(parameters, code, x) * weight).sum(-1)
                    if stochastic:
                        counts = counts + (code * weight.view(1, -1, 1, 1)).sum(1)
            metrics |= {f"{split}_loss{suffix}": loss / len(images) for suffix, loss in losses.items()}
            if split == "validation":
                metrics["perplexity"] = perplexity_of_counts(counts)
        return metrics

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        every, between = self.config.snr_every, self.config.steps_of(self.images)[1]
        if not every or (step // between) % every:
            return {}
        x = self.splits["train"][: self.config.batch]
        layer = f"encoder.{len(self.config.hidden)}"
        with torch.no_grad():
            features = self.features(parameters, x)

        def one_pass(_: int) -> Tensor:
            leaves = [parameters[f"{layer}.{kind}"].detach().requires_grad_() for kind in ("weight", "bias")]
            own = {**parameters, f"{layer}.weight": leaves[0], f"{layer}.bias": leaves[1]}
            loss = self._nats(own, self.code(own, features, choosers(True)), x).mean(-1)
            return torch.cat([g.flatten(1) for g in torch.autograd.grad(loss.sum(), leaves)], -1)

        result = gradient_snr(map(one_pass, range(self.config.snr_passes)), run_dims=1)
        return {"snr": result.snr, "snr_median": result.median, "snr_constant": result.constant}

    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[Any]]:
        x = self.splits["validation"][:64]
        with torch.no_grad():
            code = self.code(parameters, self.features(parameters, x), choosers(False))
            grey = torch.sigmoid(self.decode(parameters, code))[:, :SHOWN]
        inputs = (x[:SHOWN] * 255).round().to(torch.uint8).expand(len(grey), -1, -1)
        index = code.argmax(-1)[:, :SHOWN].to(torch.uint8 if self.config.classes <= 256 else torch.int32)
        return {
            "inputs": inputs.cpu().numpy(),
            "reconstructions": (grey * 255).round().to(torch.uint8).cpu().numpy(),
            "codes": index.cpu().numpy(),
        }

    def bytes_per_run(self) -> int:
        neurons = 2 * sum(self.encoder)
        return 4 * (6 * self.config.batch * neurons + 4 * EVALUATE * neurons)
