"""Images through the codes of a codebook: the VQ-VAE of Sonnet's notebook as a task of the laboratory.

    python examples/codebook_autoencoder.py run codebook-autoencoder --estimator all --steps 500
    python examples/codebook_autoencoder.py run codebook-autoencoder --estimator identity-ste --metric l2 \
        --dataset cifar10 --codes 512 --features 64 --width 128 --batch 32 --steps 10000 --lr 3e-4
    python examples/codebook_autoencoder.py show

    image -> conv 4x4/2, conv 4x4/2, conv 3x3, two residual blocks, conv 1x1 -> tokens of D features
          -> a code for each token -> conv 3x3, two residual blocks, two transposed convs 4x4/2 -> image

Loss per image: the mean squared error over the variance of the training pixels, plus `commitment` |x - sg q|^2, plus
`codebook` |sg x - q|^2, plus `entropy` times the penalty of IBQ. Each run is an ordinary network: the runs of a fleet
are trained one after the other inside a step. Metrics: `validation_loss` and `test_loss`, the squared error over the
variance, as drawn and by argmax; `psnr`, of the validation images in dB; `usage` and `perplexity` of the codes over all
validation tokens; `effective_codes` and `gain` of the surrogate on the first of them.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import decoupled_st as dst
from decoupled_st.nn.codebook import FORMS
from dst_lab import data
from dst_lab.cli.main import main
from dst_lab.configs import Config
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, Task
from dst_lab.tasks import register

EVALUATE = 512
START = {"rows": "codes start as tokens of training images", "normal": "from N(0, 1 / features)"}


@dataclass(frozen=True, kw_only=True)
class CodebookAutoencoderConfig(Config):
    """Defaults are a quick scale on small grey images."""

    task: ClassVar[str] = "codebook-autoencoder"
    lr: float = field(default=1e-3, metadata={"help": "Adam's learning rate"})
    dataset: str = field(default="digits", metadata={"help": "cifar10 for the published setting"})
    batch: int = field(default=32, metadata={"help": "images per step"})
    codes: int = field(default=64, metadata={"help": "K", "least": 2})
    features: int = field(default=16, metadata={"help": "of a token and of a code, D"})
    width: int = field(default=32, metadata={"help": "channels; 128 in the published setting"})
    metric: str = field(default="cosine", metadata={"help": "the score of a code: dot, cosine or l2"})
    start: str = field(default="rows", metadata={"help": "; ".join(f"{k}: {v}" for k, v in START.items())})
    commitment: float = field(default=0.25, metadata={"help": "weight of |x - sg q|^2", "least": 0.0})
    codebook: float = field(default=1.0, metadata={"help": "weight of |sg x - q|^2", "least": 0.0})
    entropy: float = field(default=0.0, metadata={"help": "weight of IBQ's entropy penalty", "least": 0.0})
    entropy_tau: float = field(default=0.1, metadata={"help": "its temperature"})
    steps: int = field(default=1000, metadata={"help": "updates"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in START:
            raise ValueError(f"start must be one of {', '.join(START)}, got {self.start!r}")

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, max(1, self.steps // 10)


class Residual(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, inner, 3, padding=1), nn.ReLU(), nn.Conv2d(inner, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Autoencoder(nn.Module):
    """Sonnet's network, with the codes as a parameter."""

    def __init__(self, channels: int, width: int, codes: int, features: int) -> None:
        super().__init__()
        half, inner = width // 2, max(1, width // 4)
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, half, 4, 2, 1), nn.ReLU(), nn.Conv2d(half, width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), Residual(width, inner), Residual(width, inner), nn.ReLU(),
            nn.Conv2d(width, features, 1),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Conv2d(features, width, 3, padding=1), Residual(width, inner), Residual(width, inner), nn.ReLU(),
            nn.ConvTranspose2d(width, half, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(half, channels, 4, 2, 1),
        )  # fmt: skip
        self.codes = nn.Parameter(torch.randn(codes, features) / features**0.5)

    def forward(self, images: Tensor, choose: "Choice") -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reconstructed images, tokens [images, h, w, D], chosen codes (with a gather's gradient alone) and index."""
        tokens = self.encoder(images).movedim(1, -1)
        q, index = choose(tokens, self.codes)
        return self.decoder(q.movedim(-1, 1)), tokens, F.embedding(index.clamp(min=0), self.codes), index


class Trained(nn.Module):
    """A trained network as an ordinary module."""

    def __init__(self, encoder: nn.Module, quantiser: dst.nn.Codebook, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.quantiser, self.decoder = encoder, quantiser, decoder

    def forward(self, images: Tensor) -> Tensor:
        return self.decoder(self.quantiser(self.encoder(images)).q)


class Choice:
    """One run's part of the fleet's choices: its estimator, temperatures and seed."""

    def __init__(self, choose: Chooser, metric: str, seeds: Tensor | None, run: int) -> None:
        if choose.card.name not in FORMS:
            raise ValueError(f"{choose.card.name} has no form for codebooks: expected one of {', '.join(FORMS)}")
        self.taus = {name: tau[run] for name, tau in choose.taus.items()}
        backward = choose.card.backward
        self.surrogate = self.taus[backward] if backward else None
        self.form, self.metric = FORMS[choose.card.name], metric
        if seeds is None and self.surrogate is not None:  # the argmax
            self.form, self.taus = dst.codebook.decoupled, {"tau_f": 0.0, "tau_b": self.surrogate}
        self.seed = None if seeds is None else seeds[run]

    def __call__(self, tokens: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        # VQ-VAE's codes hear nothing of what comes after them.
        codes = codes.detach() if self.form is dst.codebook.identity_ste else codes
        return self.form(tokens, codes, metric=self.metric, seed=self.seed, **self.taus)


def choices(choose: Chooser, metric: str, runs: int) -> list[Choice]:
    """One per run; each run's seed is drawn from its own stream."""
    seeds = None
    if choose.source is not None:
        high, low = (choose.source.uniform((2,)).double() * 2**24).long().unbind(-1)
        seeds = (high << 24) + low
    return [Choice(choose, metric, seeds, run) for run in range(runs)]


@register
class CodebookAutoencoder(Task):
    config_type = CodebookAutoencoderConfig
    config: CodebookAutoencoderConfig
    pairs_a_lone_run = False  # every run is by itself in any case

    def __init__(self, config: CodebookAutoencoderConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        dataset = data.load(config.dataset, source)
        self.splits = {
            name: torch.from_numpy(split.images).to(device).float() / 255 - 0.5
            for name, split in dataset.splits.items()
        }
        self.images, channels, *_ = self.splits["train"].shape
        self.variance = self.splits["train"].var().item()
        with torch.random.fork_rng(devices=[]):
            self.module = Autoencoder(channels, config.width, config.codes, config.features).to(device)

    def initial(self, seed: int) -> Parameters:
        config, channels = self.config, self.splits["train"].shape[1]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            module = Autoencoder(channels, config.width, config.codes, config.features)
            if config.start == "rows":
                tokens = module.encoder(self.splits["train"][:EVALUATE].cpu()).movedim(1, -1).flatten(0, -2)
                pick = torch.randperm(len(tokens)).repeat(-(-config.codes // len(tokens)))[: config.codes]
                module.codes.copy_(tokens[pick])
        return {name: copy.deepcopy(value.detach()) for name, value in module.named_parameters()}

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        config, losses = self.config, []
        for run, choice in enumerate(choices(choose, config.metric, len(index))):
            own = {name: value[run] for name, value in parameters.items()}
            images = self.splits["train"][index[run]]
            output, tokens, chosen, _ = functional_call(self.module, own, (images, choice))
            loss = (output - images).square().mean((1, 2, 3)) / self.variance
            loss = loss + config.commitment * (tokens - chosen.detach()).square().mean((1, 2, 3))
            loss = loss + config.codebook * (tokens.detach() - chosen).square().mean((1, 2, 3))
            if config.entropy:
                options = {"tau": config.entropy_tau, "metric": config.metric}
                loss = loss + config.entropy * dst.codebook.distribution(tokens, own["codes"], **options).penalty
            losses.append(loss)
        return torch.stack(losses)

    @torch.no_grad()
    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        runs, metrics = len(parameters["codes"]), {}
        for suffix, stochastic in FORWARDS.items():
            for split in ("validation", "test"):
                found = [
                    self._measure({name: value[run] for name, value in parameters.items()}, choice, split)
                    for run, choice in enumerate(choices(choosers(stochastic), self.config.metric, runs))
                ]
                error, counts = (torch.stack(part) for part in zip(*found, strict=True))
                metrics[f"{split}_loss{suffix}"] = error / self.variance
                if split == "validation":
                    share = counts / counts.sum(-1, keepdim=True)
                    metrics[f"usage{suffix}"] = (counts > 0).double().mean(-1)
                    metrics[f"perplexity{suffix}"] = torch.special.entr(share).sum(-1).exp()
                    metrics[f"psnr{suffix}"] = -10 * error.log10()
        return {name: value.float() for name, value in metrics.items()}

    def _measure(self, own: Parameters, choice: Choice, split: str) -> tuple[Tensor, Tensor]:
        """The mean squared error of a split, and how often each code was chosen."""
        images, error = self.splits[split], torch.zeros((), dtype=torch.float64, device=self.device)
        counts = torch.zeros(self.config.codes, dtype=torch.float64, device=self.device)
        for part in images.split(EVALUATE):
            output, _, _, index = functional_call(self.module, own, (part, choice))
            error += (output - part).double().square().sum()
            known = index[index >= 0].flatten()
            counts += torch.bincount(known, minlength=self.config.codes)
        return error / images.numel(), counts

    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        """How many codes share the surrogate, and how much of the gradient passes, by the median."""
        found = []
        for run, choice in enumerate(choices(choosers(False), self.config.metric, len(parameters["codes"]))):
            own = {name: value[run] for name, value in parameters.items()}
            if choice.surrogate is None:
                found.append((torch.full((), math.nan), torch.ones(())))
                continue
            with torch.no_grad():
                _, tokens, _, _ = functional_call(self.module, own, (self.splits["validation"][:8], choice))
            options = {"tau_b": choice.surrogate, "metric": self.config.metric}
            effective = dst.diagnostics.effective_codes(tokens, own["codes"], **options)
            gain = dst.diagnostics.straight_through_gain(
                tokens, own["codes"], generator=torch.Generator(self.device).manual_seed(0), **options
            )
            found.append((effective.median(), gain.median()))
        effective, gain = (torch.stack([value.cpu() for value in part]) for part in zip(*found, strict=True))
        return {"effective_codes": effective, "gain": gain}

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """Images, 0.5 less than their values from 0 to 1, to images likewise; its quantiser has index in and out."""
        assert isinstance(config, CodebookAutoencoderConfig)
        channels = tensors["encoder.0.weight"].shape[1]
        module = Autoencoder(channels, config.width, config.codes, config.features)
        module.load_state_dict(tensors)
        quantiser = dst.nn.Codebook(
            config.codes, config.features, estimator, metric=config.metric, axis=1, deterministic=deterministic
        )
        quantiser.weight = module.codes
        return Trained(module.encoder, quantiser, module.decoder)

    def bytes_per_run(self) -> int:
        pixels = self.splits["train"][0].numel()
        return 4 * max(self.config.batch, EVALUATE) * pixels * self.config.width


if __name__ == "__main__":
    main()
