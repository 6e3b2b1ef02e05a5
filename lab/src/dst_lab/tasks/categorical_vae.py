"""Categorical variational autoencoder: images through n codes of K classes, under a uniform prior.

    pixels -> linear, LeakyReLU 0.2 (x2) -> n x K logits -> one-hot codes z -> linear, LeakyReLU 0.2 (x2) -> pixels

Loss: the negative evidence lower bound in nats per image, with one draw of z,

    -ELBO = -log p(x | z) + KL(q | uniform),    KL = sum over latents of (sum_k q_k log q_k + log K)

with q = softmax(l / tau_f) the distribution that the estimator draws from (tau_f = 0: one code, and KL = n log K), and
p(x | z) Bernoulli in every pixel (grey pixels: the same formula, as is usual). Metrics, at every evaluation:
train_loss, gradient_norm; -ELBO on validation and test images by the training forward and by the deterministic one
(`.._argmax`); its parts on the validation images, `reconstruction` and `kl`; `perplexity` of the codes drawn over them,
averaged over latents. At the end: `train_set_loss`, the -ELBO of all training images with one draw each, and
`validation_bound` and `test_bound`, minus the importance-weighted bound of `bound_samples` draws per image (Burda et
al., 2016).
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.diagnostics import perplexity_of_counts
from dst_lab import data
from dst_lab.fleet.chooser import Chooser, along, drawn_at
from dst_lab.fleet.layers import pixel_nats
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, chunks, pixels
from dst_lab.runs import Config
from dst_lab.tasks import register
from dst_lab.tasks.coded_images import CodedImages

PIXELS = ("grey", "binarised")


@dataclass(frozen=True, kw_only=True)
class CategoricalVAEConfig(Config):
    """Defaults are the quick scale; `paper` is the setting of Hooper and Shekhovtsov (2026), 8 x 4 codes apart."""

    task: ClassVar[str] = "categorical-vae"
    lr: float = field(default=2e-3, metadata={"help": "learning rate"})
    hidden: tuple[int, ...] = field(default=(64, 32), metadata={"help": "widths of the encoder; mirrored to decode"})
    latents: int = field(default=8, metadata={"help": "categorical variables, n of n x K"})
    classes: int = field(default=4, metadata={"help": "classes of each, K of n x K", "least": 2})
    pixels: str = field(default="grey", metadata={"help": "grey: values from 0 to 1; binarised: 1 above a half"})
    epochs: int = field(default=30, metadata={"help": "passes over the training images"})
    evaluate_every: int = field(default=1, metadata={"help": "epochs between evaluations", "omit": True})
    bound_samples: int = field(
        default=100, metadata={"help": "of the importance bound at the end; 0: none", "least": 0}
    )
    # Always written: what differs from other tasks' defaults belongs to the identity of a run.
    optimiser: str = field(default="adamw", metadata={"help": "adam, adamw or radam"})
    weight_decay: float = field(default=0.01, metadata={"help": "of adamw"})
    lr_schedule: str = field(default="cosine", metadata={"help": "constant, or cosine: down to 0 at the end"})
    warmup: float = field(default=1.0, metadata={"help": "epochs over which the learning rate rises from 0"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pixels not in PIXELS:
            raise ValueError(f"pixels must be one of {', '.join(PIXELS)}, got {self.pixels!r}")

    def steps_of(self, images: int) -> tuple[int, int]:
        batches = images // self.batch
        return self.epochs * batches, self.evaluate_every * batches

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"dataset": "mnist", "hidden": (512, 256), "batch": 200, "epochs": 500, "lr": 1e-3, "warmup": 10.0}


EVALUATE = 1024


@register
class CategoricalVAE(CodedImages):
    config_type = CategoricalVAEConfig
    config: CategoricalVAEConfig
    leaky = True

    def __init__(self, config: CategoricalVAEConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load(config.dataset, source)
        self.splits = {name: pixels(split, device) for name, split in dataset.splits.items()}
        if config.pixels == "binarised":
            self.splits = {name: (images > 0.5).float() for name, images in self.splits.items()}
        self.images, inputs = self.splits["train"].shape
        self.set_inputs(inputs)

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x = self.splits["train"][index]
        logits = self.logits(parameters, x)
        kl = divergence(logits, drawn_at(choose, logits))
        return self.reconstruction(parameters, choose.categorical(logits), x) + kl

    def reconstruction(self, parameters: Parameters, code: Tensor, x: Tensor) -> Tensor:
        """[runs, images]: -log p(x | z)."""
        return pixel_nats(self.decode(parameters, code), x)

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        metrics: Metrics = {}
        for split in ("validation", "test"):
            sums = self._sums(parameters, split, choosers)
            kl = sums.pop("kl")
            metrics |= {f"{split}_loss{suffix}": sums[suffix] + kl for suffix in FORWARDS}
            if split == "validation":
                metrics |= {"reconstruction": sums[""], "kl": kl, "perplexity": sums["perplexity"]}
        return metrics

    def _sums(self, parameters: Parameters, split: str, choosers: Choosers) -> Metrics:
        """Means over a split, [runs] each: reconstruction by each forward, KL, and the perplexity of drawn codes."""
        images, runs = self.splits[split], len(parameters["encoder.0.bias"])
        nothing = torch.zeros(runs, device=self.device)
        sums = {**dict.fromkeys(FORWARDS, nothing), "kl": nothing}
        counts = torch.zeros(runs, self.config.latents, self.config.classes, device=self.device)
        for index, weight in chunks(len(images), EVALUATE, self.device):
            x = images[index]
            logits = self.logits(parameters, x)
            sums["kl"] = sums["kl"] + (divergence(logits, drawn_at(choosers(True), logits)) * weight).sum(-1)
            for suffix, stochastic in FORWARDS.items():
                code = choosers(stochastic).categorical(logits)
                sums[suffix] = sums[suffix] + (self.reconstruction(parameters, code, x) * weight).sum(-1)
                if stochastic:
                    counts = counts + (code * weight.view(1, -1, 1, 1)).sum(1)
        perplexity = perplexity_of_counts(counts).mean(-1)
        return {name: total / len(images) for name, total in sums.items()} | {"perplexity": perplexity}

    @torch.no_grad()
    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        if step != self.config.steps_of(self.images)[0]:
            return {}
        sums = self._sums(parameters, "train", choosers)
        metrics = {"train_set_loss": sums[""] + sums["kl"]}
        # What is relaxed is not drawn, and has no probability to be weighted by.
        if self.config.bound_samples and choosers(True).kind.draw is not None:
            metrics |= {f"{split}_bound": self.bound(parameters, split, choosers) for split in ("validation", "test")}
        return metrics

    def bound(self, parameters: Parameters, split: str, choosers: Choosers) -> Tensor:
        """[runs]: minus the mean over images of log (1/S) sum_s p(x | z_s) p(z_s) / q(z_s), in nats."""
        images, runs = self.splits[split], len(parameters["encoder.0.bias"])
        total = torch.zeros(runs, device=self.device)
        prior = self.config.latents * math.log(self.config.classes)
        for index, weight in chunks(len(images), EVALUATE, self.device):
            x = images[index]
            logits = self.logits(parameters, x)
            log_q = log_probabilities(logits, drawn_at(choosers(True), logits))
            weights = []
            for _ in range(self.config.bound_samples):
                code = choosers(True).categorical(logits)
                drawn = (code * log_q).sum((-1, -2))
                weights.append(-self.reconstruction(parameters, code, x) - prior - drawn)
            logs = torch.logsumexp(torch.stack(weights), 0) - math.log(self.config.bound_samples)
            total = total - (logs * weight).sum(-1)
        return total / len(images)

    def bytes_per_run(self) -> int:
        code = self.encoder[-1]
        trained = 6 * self.config.batch * (2 * sum(self.encoder) + 4 * code)
        # An evaluation keeps no layer but the one it is at; of the bound it keeps every draw's weight.
        evaluated = EVALUATE * (4 * max(self.encoder) + 16 * code + 3 * self.config.bound_samples)
        return 4 * (trained + evaluated)


def log_probabilities(logits: Tensor, tau: Tensor) -> Tensor:
    """log q [runs, images, latents, classes] at temperatures tau, [runs] or row by row; at 0 that of the argmax, which
    is certain."""
    tau = along(tau, logits)
    log_q = torch.log_softmax(logits / torch.where(tau == 0, 1.0, tau), -1)
    return torch.where(tau == 0, 0.0, log_q)


def divergence(logits: Tensor, tau: Tensor) -> Tensor:
    """KL [runs, images] of q = softmax(logits / tau) from the uniform distribution, exactly; n log K at tau = 0."""
    log_q = log_probabilities(logits, tau)
    latents, classes = logits.shape[-2:]
    return (log_q.exp() * log_q).sum((-1, -2)) + latents * math.log(classes)
