"""Polynomial programming: many independent choices, each to come near a target; the exact gradient is known.

    minimise the mean over latents of E |e_z - target|^p,    z drawn from softmax(l / tau_f)

Every latent has logits of its own (they are the only parameters, from U(-0.01, 0.01)). A class has the value e_k: 1 and
0 where there are two, otherwise drawn from N(0, 1) once, for all latents and all runs, and moved to reach from 0 to 1.
Nothing is read. The best choice is the value nearest to the target, so the optimum is known too.

Metrics, at every evaluation: train_loss, gradient_norm; `validation_loss`, the expected loss by the formula, at the
temperature that is drawn at; `validation_loss_argmax`; `excess`, what the expected loss has above the optimum; and, of
the gradient by all logits over `passes` draws, in float64, as in the task bias-variance: `bias`, `variance`, `cosine`,
`rescale`, `bias_rescaled`, `variance_rescaled`, `exact_norm`, `bias_floor`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dst_lab.fleet.chooser import Chooser, along, drawn_at
from dst_lab.fleet.task import Choosers, Metrics, Parameters, Task
from dst_lab.runs import Config
from dst_lab.tasks import register
from dst_lab.tasks.bias_variance import compare


@dataclass(frozen=True, kw_only=True)
class PolynomialConfig(Config):
    """Defaults are the quick scale; `paper` is that of Liu et al. (2023)."""

    task: ClassVar[str] = "polynomial"
    lr: float = field(default=1e-2, metadata={"help": "learning rate"})
    dataset: str = field(default="none", metadata={"help": "no data are read"})
    batch: int = field(default=64, metadata={"help": "draws per step"})
    latents: int = field(default=128, metadata={"help": "categorical variables"})
    classes: int = field(default=2, metadata={"help": "of each; 2 have the values 1 and 0", "least": 2})
    power: float = field(default=2.0, metadata={"help": "p of the mean of |z - target|^p"})
    target: float = field(default=0.45, metadata={"help": "what every latent should be near"})
    steps: int = field(default=800, metadata={"help": "training steps"})
    evaluate_every: int = field(default=40, metadata={"help": "steps between evaluations"})
    passes: int = field(default=256, metadata={"help": "draws for bias and variance of the estimator", "least": 2})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset != "none":
            raise ValueError(f"polynomial reads no data: leave dataset out, got dataset={self.dataset}")
        if self.power < 1:
            raise ValueError(f"power must be at least 1, where the gradient exists, got power={self.power}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PolynomialConfig":
        """Also of a run that was recorded when any data set could be named."""
        return super().from_dict({**values, "dataset": "none"})

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, self.evaluate_every

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"lr": 1e-3, "steps": 8000, "evaluate_every": 200, "passes": 1024}


AT_ONCE = 64
"""Draws in one pass."""
EMBEDDING = 0
"""The seed of the embedding, which all latents and runs share: that of Hooper and Shekhovtsov (2026). With four classes
it gives 1, 0.507, 0 and 0.739."""


@register
class Polynomial(Task):
    config_type = PolynomialConfig
    config: PolynomialConfig

    def __init__(self, config: PolynomialConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        self.images = config.batch  # every step draws its own: nothing is held but the number
        self.values = embedding(config.classes).to(device)
        self.losses = (self.values - config.target).abs() ** config.power
        self.optimum = self.losses.min()

    def initial(self, seed: int) -> Parameters:
        shape = self.config.latents, self.config.classes
        return {"logits": 0.02 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)) - 0.01}

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        logits = parameters["logits"].unsqueeze(1).expand(-1, index.shape[1], -1, -1)
        return self.of_choices(choose.categorical(logits.contiguous()))

    def of_choices(self, z: Tensor) -> Tensor:
        """[...]: the loss of one-hot choices [..., latents, classes]."""
        chosen = (z * self.values.to(z)).sum(-1)
        return ((chosen - self.config.target).abs() ** self.config.power).mean(-1)

    def expected(self, logits: Tensor, tau: Tensor) -> Tensor:
        """[runs]: the mean loss of choices drawn from softmax(logits / tau); at tau = 0 that of the argmax."""
        tau = along(tau, logits)
        soft = torch.softmax(logits / torch.where(tau == 0, 1.0, tau), -1)
        certain = nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits)
        share = torch.where(tau == 0, certain, soft)
        return (share * self.losses.to(logits)).sum(-1).mean(-1)

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        logits = parameters["logits"].double()
        tau = _drawn_at(choosers(True), logits)
        loss = self.expected(logits, tau)
        argmax = self.expected(logits, torch.zeros(1, device=logits.device))
        metrics = {"validation_loss": loss, "validation_loss_argmax": argmax, "excess": loss - self.optimum}
        return {name: value.float() for name, value in metrics.items()}

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        """The estimator compared with the exact gradient at its own temperature or, for the argmax, whose objective is
        piecewise constant, at temperature 1."""
        logits = parameters["logits"].double()
        tau = _drawn_at(choosers(True), logits)
        leaf = logits.clone().requires_grad_()
        (exact,) = torch.autograd.grad(self.expected(leaf, torch.where(tau == 0, 1.0, tau)).sum(), leaf)
        total, square, passes = torch.zeros_like(logits), torch.zeros_like(logits), self.config.passes
        for start in range(0, passes, AT_ONCE):
            count = min(AT_ONCE, passes - start)
            many = logits.unsqueeze(1).expand(-1, count, -1, -1).clone().requires_grad_()
            (estimates,) = torch.autograd.grad(self.of_choices(choosers(True).categorical(many)).sum(), many)
            total, square = total + estimates.sum(1), square + (estimates**2).sum(1)
        mean = total / passes
        variance = ((square - passes * mean**2).clamp(min=0) / (passes - 1)).flatten(1).sum(-1)
        floor = (variance / passes).sqrt() / exact.flatten(1).norm(dim=-1)
        metrics = compare(mean, variance, exact) | {"bias_floor": floor}
        return {name: value.float() for name, value in metrics.items()}

    def bytes_per_run(self) -> int:
        numbers = self.config.latents * self.config.classes
        return 8 * 6 * numbers * (AT_ONCE + self.config.batch)


def embedding(classes: int) -> Tensor:
    """[classes]: 1 and 0, or values from N(0, 1), moved and scaled to reach from 0 to 1."""
    if classes == 2:
        return torch.tensor([1.0, 0.0])
    values = torch.randn(classes, generator=torch.Generator().manual_seed(EMBEDDING))
    return (values - values.min()) / (values.max() - values.min())


def _drawn_at(choose: Chooser, logits: Tensor) -> Tensor:
    """[runs], or [runs, latents, 1] where a rule sets it row by row; the logits are the same for all images."""
    tau = drawn_at(choose, logits.unsqueeze(1))
    return tau if tau.dim() == 1 else tau.squeeze(1)
