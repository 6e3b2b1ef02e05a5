"""Bias and variance: how far each estimator is from the exact gradient, on an autoencoder small enough to enumerate.

    pixels -> linear, ReLU -> latents x classes -> one-hot codes -> linear, ReLU -> pixels

There are classes ** latents codes, so the expected loss and its gradient are sums over all of them. Every run trains
with the exact gradient of the expected loss at temperature 1, on the same few images at every step: runs of one seed
pass through the same parameters whatever their estimator, and what is measured on the way is the estimator alone.

Measured, in float64, are gradients with respect to the logits of all images together, with L the loss of an image:

    exact g     d/dl of the sum over codes of P(z; softmax(l / tau)) L(z), tau the temperature the estimator draws at
    estimate e  what the estimator sends back for one draw of every image's code

Where e is a function of the code (Decoupled ST, Softmax STE), its mean and covariance are sums over the codes too, so
there is no sampling noise. Where it depends on the noise beyond the code (ST-GS): `passes` draws, unbiased, with
`bias_floor` what an unbiased estimator's `bias` would read. The argmax (Identity STE, tau_f = 0) has a piecewise
constant objective, whose gradient is 0: it is held against g at temperature 1, the objective trained on. Soft: at the
temperature it relaxes.

Metrics: train_loss, gradient_norm, validation_loss (exact, temperature 1); `exact_norm` |g|; `bias` |E e - g| / |g|;
`variance` tr Cov(e) / |g|^2; `cosine` of E e and g; `rescale`, the s that minimises |s E e - g|; `bias_rescaled` and
`variance_rescaled`, those of s e: what is left when the length is put right, by a learning rate say; `bias_floor`.
The same with `initial_` are measured at the initial parameters, once, at the first evaluation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

import decoupled_st as dst
from dst_lab import data
from dst_lab.estimators import takes_noise
from dst_lab.fleet.chooser import Chooser, along, drawn_at
from dst_lab.fleet.task import Choosers, Metrics, Parameters, pixels, sum_per_run
from dst_lab.runs import Config
from dst_lab.tasks import register
from dst_lab.tasks.coded_images import CodedImages

MOST_CODES = 4096


@dataclass(frozen=True, kw_only=True)
class BiasVarianceConfig(Config):
    """Both scales have the same config; what differs is how many temperatures and seeds a recipe takes."""

    task: ClassVar[str] = "bias-variance"
    lr: float = field(default=3e-3, metadata={"help": "learning rate"})
    batch: int = field(default=32, metadata={"help": "images, every step the same ones"})
    hidden: tuple[int, ...] = field(default=(32,), metadata={"help": "widths of the encoder; mirrored to decode"})
    latents: int = field(default=3, metadata={"help": "categorical variables"})
    classes: int = field(default=4, metadata={"help": "classes of each"})
    steps: int = field(default=60, metadata={"help": "training steps"})
    evaluate_every: int = field(default=10, metadata={"help": "steps between measurements"})
    passes: int = field(default=1024, metadata={"help": "draws of an estimator that is not enumerated", "least": 2})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes**self.latents > MOST_CODES:
            raise ValueError(
                f"classes ** latents must be at most {MOST_CODES}, since every code is enumerated, "
                f"got {self.classes} ** {self.latents}"
            )

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, self.evaluate_every


Estimate: TypeAlias = Callable[[Tensor], Tensor]
"""Logits -> one-hot choices that carry a gradient."""

OF_THE_CHOICE = [kind.surrogate for kind in (dst.IdentitySTE, dst.Decoupled, dst.ReinMax, dst.GappedSTE)]
"""Surrogates whose gradient is a function of the logits and the choice: these are enumerated, others drawn."""
AT_ONCE = 64
"""Draws of every image in one pass."""
FORCED = 1e9
"""Noise that outweighs any logit: it makes a draw the code it is given for."""


@register
class BiasVariance(CodedImages):
    config_type = BiasVarianceConfig
    config: BiasVarianceConfig

    def __init__(self, config: BiasVarianceConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load(config.dataset, source)
        config.batches_of(len(dataset.train))
        self.train = pixels(dataset.train, device)[: config.batch]
        self.validation = pixels(dataset.validation, device)
        self.images = config.batch
        self.set_inputs(self.train.shape[1])
        place = config.classes ** torch.arange(config.latents - 1, -1, -1, device=device)
        number = torch.arange(config.classes**config.latents, device=device).unsqueeze(-1)
        self.codes = F.one_hot(number // place % config.classes, config.classes).float()  # [codes, latents, classes]

    def fixed(self, seed: int) -> Parameters:
        """The initial parameters, to be measured at the first evaluation."""
        return {f"initial.{name}": tensor for name, tensor in self.initial(seed).items()}

    def nats_of_codes(self, parameters: Parameters, x: Tensor) -> Tensor:
        """[runs, images, codes]: the loss of every image under every code; x [images, pixels] or with a run axis."""
        first = parameters["encoder.0.bias"]
        runs, codes = len(first), self.codes.to(first.dtype)
        output = self.decode(parameters, codes.expand(runs, *codes.shape))
        x = x.expand(runs, *x.shape[-2:])
        return F.softplus(output).sum(-1).unsqueeze(1) - x @ output.transpose(1, 2)

    def expected(self, logits: Tensor, nats: Tensor, tau: Tensor | float = 1.0) -> Tensor:
        """[runs, images]: the mean loss over codes drawn from softmax(logits / tau)."""
        return (self._log_probability(logits, tau).exp() * nats).sum(-1)

    def _log_probability(self, logits: Tensor, tau: Tensor | float) -> Tensor:
        """[runs, images, codes]"""
        log_p = torch.log_softmax(logits / tau, -1).flatten(2)
        return log_p @ self.codes.to(log_p.dtype).flatten(1).T

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x = self.train[index]
        return self.expected(self.logits(parameters, x), self.nats_of_codes(parameters, x))

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        x = self.validation
        nats = self.expected(self.logits(parameters, x), self.nats_of_codes(parameters, x))
        return {"validation_loss": sum_per_run(nats) / len(x)}

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        metrics = self.measure(parameters, choosers)
        if step == min(self.config.evaluate_every, self.config.steps):
            first = {name: parameters[f"initial.{name}"] for name in self.initial(0)}
            metrics |= {f"initial_{name}": value for name, value in self.measure(first, choosers).items()}
        return metrics

    def measure(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        """The estimator compared with the exact gradient at these parameters, [runs] each."""
        parameters = {name: tensor.double() for name, tensor in parameters.items()}
        x = self.train.double()
        logits = self.logits(parameters, x).detach()
        tau = drawn_at(choosers(True), logits)
        tau = along(torch.where(tau == 0, 1.0, tau), logits)  # 1 where it takes the argmax
        leaf = logits.clone().requires_grad_()
        expected = self.expected(leaf, self.nats_of_codes(parameters, x).detach(), tau)
        (exact,) = torch.autograd.grad(expected.sum(), leaf)
        mean, variance, floor = self._moments(parameters, logits, x, choosers, tau)
        return {name: value.float() for name, value in compare(mean, variance, exact).items()} | {
            "bias_floor": (floor / exact.flatten(1).norm(dim=-1)).float()
        }

    def _moments(
        self, parameters: Parameters, logits: Tensor, x: Tensor, choosers: Choosers, tau: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The estimates' mean [runs, images, latents, classes], trace of the covariance [runs], and floor [runs]."""
        kind, taus = choosers(True).kind, choosers(True).taus
        if kind.surrogate not in OF_THE_CHOICE:
            return self._drawn(parameters, logits, x, choosers)
        if not takes_noise(kind):
            estimates = self._estimates(parameters, logits, x, 1, choosers(True).categorical)
            weight = torch.ones_like(estimates[..., :1, :1])
        else:
            noise = (FORCED * self.codes).expand(*logits.shape[:2], *self.codes.shape)
            shaped = {key: value.view(-1, 1, 1, 1, 1) for key, value in taus.items()}
            estimator, options = kind.functions["categorical"], dict(self.config.estimator.options)
            force = lambda l: estimator(l, noise=noise, **shaped, **options)  # noqa: E731
            estimates = self._estimates(parameters, logits, x, len(self.codes), force)
            weight = self._log_probability(logits, tau).exp()[..., None, None]
        mean = (weight * estimates).sum(2)
        apart = (weight * (estimates - mean.unsqueeze(2)) ** 2).flatten(1).sum(-1)
        return mean, apart, torch.zeros_like(apart)

    def _drawn(
        self, parameters: Parameters, logits: Tensor, x: Tensor, choosers: Choosers
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, trace of the covariance and floor from `passes` draws; the floor is the mean's standard error."""
        passes = self.config.passes
        total, square = torch.zeros_like(logits), torch.zeros_like(logits)
        for start in range(0, passes, AT_ONCE):
            count = min(AT_ONCE, passes - start)
            estimates = self._estimates(parameters, logits, x, count, choosers(True).categorical)
            total, square = total + estimates.sum(2), square + (estimates**2).sum(2)
        mean = total / passes
        variance = ((square - passes * mean**2) / (passes - 1)).flatten(1).sum(-1)
        return mean, variance, (variance / passes).sqrt()

    def _estimates(self, parameters: Parameters, logits: Tensor, x: Tensor, count: int, choose: Estimate) -> Tensor:
        """[runs, images, count, latents, classes]: what the estimator sends back to the logits, `count` times over."""
        leaf = logits.unsqueeze(2).expand(-1, -1, count, -1, -1).clone().requires_grad_()
        output = self.decode(parameters, choose(leaf).flatten(1, 2))
        target = x.repeat_interleave(count, 0).expand_as(output)
        loss = F.binary_cross_entropy_with_logits(output, target, reduction="sum")
        return torch.autograd.grad(loss, leaf)[0]

    def bytes_per_run(self) -> int:
        draws = self.config.batch * max(AT_ONCE, len(self.codes))
        return 8 * 8 * draws * sum(self.encoder)


def compare(mean: Tensor, variance: Tensor, exact: Tensor) -> Metrics:
    """The metrics, [runs] each, from the estimates' mean [runs, ...], total variance [runs], and the exact gradient."""
    mean, exact = mean.flatten(1), exact.flatten(1)
    square = (exact**2).sum(-1)
    along = (mean * exact).sum(-1)
    rescale = along / (mean**2).sum(-1)
    return {
        "exact_norm": square.sqrt(),
        "bias": (((mean - exact) ** 2).sum(-1) / square).sqrt(),
        "variance": variance / square,
        "cosine": along / ((mean**2).sum(-1) * square).sqrt(),
        "rescale": rescale,
        "bias_rescaled": (((rescale.unsqueeze(-1) * mean - exact) ** 2).sum(-1) / square).sqrt(),
        "variance_rescaled": rescale**2 * variance / square,
    }
