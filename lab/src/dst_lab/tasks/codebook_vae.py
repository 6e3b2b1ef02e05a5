"""Images through the codes of a codebook: the VQ-VAE of Sonnet's notebook, with the quantiser as an option.

    image -> conv 4x4/2, conv 4x4/2, conv 3x3, two residual blocks, conv 1x1 -> tokens of D features
          -> a code for each token -> conv 3x3, two residual blocks, two transposed convs 4x4/2 -> image

Loss per image: the mean squared error over the variance of the training pixels (of CIFAR-10 0.0632704), and what the
quantiser adds (`dst_lab.tasks.quantisers`). Every run is an ordinary network, trained alone. Metrics, as drawn and by
argmax (`.._argmax`): `validation_loss`, the squared error over the variance; `psnr` in dB; `usage` and `perplexity` of
the codes over all validation tokens. On a GPU `step_ms`, the time of a step since the evaluation before (evaluation
apart), and `peak_mib`, the most memory that training took, the images themselves not counted. At the end `test_loss`,
`test_mse`, `test_psnr`, `test_usage` and `test_perplexity`; `train_nmse` and `batch_perplexity`, error and perplexity
of batches of training images, as the notebook prints them; `effective_codes` and `gain` of the surrogate.
"""

import math
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call

import decoupled_st as dst
from dst_lab import data
from dst_lab.estimators import Schedule, takes_noise
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.rules import by_row
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, Task
from dst_lab.runs import Config
from dst_lab.tasks import register
from dst_lab.tasks.cost import Cost
from dst_lab.tasks.quantisers import KINDS, CodebookVAEConfig, Learned, Quantised, defined

EVALUATE = 512
SHOWN = 8
"""Validation images that are kept as they come back."""
SEEN = 5_000
"""Training images that are measured at the end."""
VARIANCES = {"cifar10": 0.0632704}
"""The variance of training pixels, where others have published it; elsewhere it is measured."""
FORMS = {name: getattr(dst.codebook, name) for name in dst.estimators.names() if name in dst.codebook.__all__}
"""The functions of the estimators that have a form for codebooks, by the estimators' names."""


class Residual(nn.Module):
    """A residual block, as Sonnet's notebook has it."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, inner, 3, padding=1), nn.ReLU(), nn.Conv2d(inner, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Autoencoder(nn.Module):
    """Sonnet's network around a quantiser."""

    def __init__(self, channels: int, config: CodebookVAEConfig) -> None:
        super().__init__()
        width, half, inner = config.width, config.width // 2, config.width // 4
        self.half_precision = config.precision == "bfloat16"
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, half, 4, 2, 1), nn.ReLU(), nn.Conv2d(half, width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), Residual(width, inner), Residual(width, inner), nn.ReLU(),
            nn.Conv2d(width, config.features, 1),
        )  # fmt: skip
        self.quantiser = KINDS[config.quantiser](config)
        self.decoder = nn.Sequential(
            nn.Conv2d(config.features, width, 3, padding=1), Residual(width, inner), Residual(width, inner), nn.ReLU(),
            nn.ConvTranspose2d(width, half, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(half, channels, 4, 2, 1),
        )  # fmt: skip

    def tokens(self, images: Tensor) -> Tensor:
        """[images, h, w, D]"""
        with self._rounded(images):
            tokens: Tensor = self.encoder(images.contiguous(memory_format=torch.channels_last))
        return tokens.float().movedim(1, -1)

    def forward(self, images: Tensor, choose: "Choice | None") -> tuple[Tensor, Quantised]:
        """Reconstructed images, and what became of their tokens; without a choice the tokens [images, h, w, D]."""
        tokens = self.tokens(images)
        if choose is None:
            return tokens, Quantised(tokens, tokens, tokens)
        quantised: Quantised = self.quantiser(tokens.flatten(0, -2), choose)
        q = quantised.q.view(tokens.shape).movedim(-1, 1)
        with self._rounded(images):
            output: Tensor = self.decoder(q)
        return output.float(), quantised

    def _rounded(self, images: Tensor) -> torch.autocast:
        # Without its cache, whose tensors a captured CUDA graph would not make again.
        return torch.autocast(images.device.type, torch.bfloat16, enabled=self.half_precision, cache_enabled=False)


class Reconstruct(nn.Module):
    """A trained network as an ordinary module."""

    def __init__(self, network: Autoencoder, quantiser: nn.Module) -> None:
        super().__init__()
        self.encoder, self.quantiser, self.decoder = network.encoder, quantiser, network.decoder

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.encoder(images)
        if isinstance(self.quantiser, dst.nn.Codebook):
            output: Tensor = self.decoder(self.quantiser(tokens).q)
            return output
        with torch.no_grad():  # without gradients, moving means stay where they are
            rows = tokens.movedim(1, -1)
            q = self.quantiser(rows.flatten(0, -2), None).q.view(rows.shape)
            output = self.decoder(q.movedim(-1, 1))
        return output


class Choice:
    """One run's part of the fleet's choices: its estimator, temperatures and seed."""

    def __init__(self, choose: Chooser, metric: str, taus: Metrics, seeds: Tensor | None, run: int) -> None:
        self.taus: dict[str, Tensor | float] = {name: tau[run] for name, tau in taus.items()}
        backward = choose.kind.backward
        self.surrogate = self.taus[backward] if backward else None
        self.form, self.metric = FORMS[choose.kind.name], metric
        if self.surrogate is not None and (seeds is None or always_argmax(choose)):
            self.form, self.taus = dst.codebook.decoupled, {"tau_f": 0.0, "tau_b": self.surrogate}
        self.seed = None if seeds is None else seeds[run]

    def of_part(self, number: int) -> "Choice":
        """The choice for one of several parts of the images, with draws of its own: noise goes by seed and row."""
        part = copy(self)
        part.seed = None if self.seed is None else self.seed + number
        return part

    def __call__(self, tokens: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        # VQ-VAE's codes get no gradient from what comes after them.
        codes = codes.detach() if self.form is dst.codebook.identity_ste else codes
        return self.form(tokens, codes, metric=self.metric, seed=self.seed, **self.taus)


def always_argmax(choose: Chooser) -> bool:
    """True where a run alone has a forward temperature of 0 from first to last: nothing has to be drawn."""
    drawn = dict(choose.choice.temperatures).get(str(choose.kind.draw))
    alone = all(tau.numel() == 1 for tau in choose.taus.values())
    return alone and drawn == Schedule.parse(0.0)


@register
class CodebookVAE(Task):
    config_type = CodebookVAEConfig
    config: CodebookVAEConfig
    pairs_a_lone_run = False
    alone = True

    def __init__(self, config: CodebookVAEConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        if config.estimator.name not in FORMS:
            raise ValueError(f"{config.estimator.name} has no form for codebooks: expected one of {', '.join(FORMS)}")
        if rules := by_row(config.estimator):
            raise ValueError(
                f"a codebook has one temperature for all rows, and the rule {rules} sets one for each: take "
                "another rule, or numbers"
            )
        dataset = data.load(config.dataset, source)
        self.splits = {name: torch.from_numpy(split.images).to(device) for name, split in dataset.splits.items()}
        self.images, channels, *sides = self.splits["train"].shape
        if any(side % 4 for side in sides):
            raise ValueError(f"{config.task} takes images whose sides are multiples of 4, got {sides[0]} x {sides[1]}")
        published = VARIANCES.get(config.dataset)
        self.variance = published or self.splits["train"].double().div_(255).var().item()
        with torch.random.fork_rng(devices=[]):
            self.module = Autoencoder(channels, config).to(device)
        self.made: tuple[int, Parameters] | None = None
        self.cost = Cost(device)

    def initial(self, seed: int) -> Parameters:
        self.cost.begin()
        return self._named(seed, {name for name, _ in self.module.named_parameters()})

    def fixed(self, seed: int) -> Parameters:
        return {} if self.module.quantiser.moves else self._named(seed, self._buffers())

    def buffers(self, seed: int) -> Parameters:
        return self._named(seed, self._buffers()) if self.module.quantiser.moves else {}

    def lasting(self, fixed: Parameters) -> Parameters:
        return fixed

    def _buffers(self) -> set[str]:
        return {name for name, _ in self.module.named_buffers()}

    @torch.no_grad()
    def _named(self, seed: int, names: set[str]) -> Parameters:
        """The tensors with these names of a seed's network before training, on the CPU."""
        if self.made is None or self.made[0] != seed:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                module = Autoencoder(self.splits["train"].shape[1], self.config).to(self.device)
                module.quantiser.start(self._tokens(module) if self.config.start == "rows" else None)
            self.made = seed, {name: tensor.cpu() for name, tensor in module.state_dict().items()}
        return {name: tensor.clone() for name, tensor in self.made[1].items() if name in names}

    def _tokens(self, module: Autoencoder) -> Tensor:
        """The tokens of as many training images as have one for each code, but at least of one part."""
        per_image = math.prod(self.splits["train"].shape[-2:]) // 16
        images = self.splits["train"][: max(EVALUATE, -(-self.config.codes // per_image))]
        return torch.cat([module.tokens(centred(part)).flatten(0, -2) for part in torch.split(images, EVALUATE)])

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        losses, images = [], [centred(self.splits["train"][of_run]) for of_run in index]
        for run, choice in enumerate(self._choices(parameters, choose, [some[:1] for some in images])):
            output, quantised = functional_call(self.module, of_one(parameters, run), (images[run], choice))
            error = (output - images[run]).square().mean((1, 2, 3)) / self.variance
            losses.append(error + quantised.losses.view(len(error), -1).mean(-1))
        return torch.stack(losses)

    def _choices(self, parameters: Parameters, choose: Chooser, images: list[Tensor]) -> list[Choice]:
        """One per run. Each run's seed is drawn from its own stream; a rule sees the scores of `images`, one per run:
        all scores of a batch would be the N x K numbers that are never built here."""
        seeds, taus = None, dict(choose.taus)
        if choose.source is not None:
            high, low = (choose.source.noise("uniform", (2,)).double() * 2**24).long().unbind(-1)
            seeds = (high << 24) + low
        if choose.rules:
            with torch.no_grad():
                logits = torch.stack([self._scores(of_one(parameters, run), x) for run, x in enumerate(images)])
            taus |= {name: tau.reshape(len(images)) for name, tau in choose.ruled("categorical", logits).items()}
        return [Choice(choose, self.config.metric, taus, seeds, run) for run in range(len(images))]

    def _scores(self, own: Parameters, images: Tensor) -> Tensor:
        """[images, tokens, codes]"""
        tokens, _ = functional_call(self.module, own, (images, None))
        x, codes = tokens.flatten(1, -2), own["quantiser.codes"]
        if self.config.metric == "cosine":
            x, codes = (nn.functional.normalize(vectors, dim=-1) for vectors in (x, codes))
        scores = x @ codes.T
        return (
            scores
            if self.config.metric != "l2"
            else 2 * scores - codes.square().sum(-1) - x.square().sum(-1)[..., None]
        )

    @torch.no_grad()
    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        runs, cost = len(next(iter(parameters.values()))), self.cost.of_training(*self.config.steps_of(self.images))
        metrics: Metrics = {}
        for suffix, measured in self._measure(parameters, choosers, "validation").items():
            metrics |= {f"validation_loss{suffix}": measured.error / self.variance, f"psnr{suffix}": measured.psnr}
            metrics |= {f"usage{suffix}": measured.usage, f"perplexity{suffix}": measured.perplexity}
        self.cost.begin_steps()
        return metrics | {name: torch.full((runs,), value) for name, value in cost.items()}

    @torch.no_grad()
    def diagnose(self, parameters: Parameters, choosers: Choosers, step: int) -> Metrics:
        if step != self.config.steps_of(self.images)[0]:
            return {}
        metrics: Metrics = {}
        for suffix, measured in self._measure(parameters, choosers, "test").items():
            metrics |= {f"test_loss{suffix}": measured.error / self.variance, f"test_psnr{suffix}": measured.psnr}
            metrics |= {f"test_usage{suffix}": measured.usage, f"test_perplexity{suffix}": measured.perplexity}
            metrics[f"test_mse{suffix}"] = measured.error
        in_training = self._measure(parameters, choosers, "train", SEEN, self.config.batch)[""]
        metrics |= {"train_nmse": in_training.error / self.variance, "batch_perplexity": in_training.of_batches}
        return metrics | self._surrogate(parameters, choosers)

    def _measure(
        self, parameters: Parameters, choosers: Choosers, split: str, most: int | None = None, size: int = EVALUATE
    ) -> "dict[str, Measured]":
        """A split by each forward, of all runs; where nothing is drawn they are one."""
        images, measured = self.splits[split][:most], dict[str, Measured]()
        for suffix, stochastic in FORWARDS.items():
            choose = choosers(stochastic)
            if not stochastic and not takes_noise(choose.kind) and choose.rules is None and self._certain(choose):
                measured[suffix] = measured[""]
                continue
            runs = len(next(iter(parameters.values())))
            first = centred(images[:1])
            each = [
                self._of_run(of_one(parameters, run), choice, images, size)
                for run, choice in enumerate(self._choices(parameters, choose, [first] * runs))
            ]
            measured[suffix] = Measured(*(torch.stack(part).float() for part in zip(*each, strict=True)))
        return measured

    def _certain(self, choose: Chooser) -> bool:
        draw = choose.kind.draw
        return not isinstance(draw, str) or bool((choose.taus[draw] == 0).all())

    def _of_run(self, own: Parameters, choice: Choice, images: Tensor, size: int) -> "tuple[Tensor, ...]":
        counts = torch.zeros(self.config.codes, dtype=torch.float64, device=self.device)
        error, of_batches = counts.new_zeros(()), []
        for number, part in enumerate(torch.split(images, size)):
            x = centred(part)
            output, quantised = functional_call(self.module, own, (x, choice.of_part(number)))
            error += (output - x).double().square().sum()
            here = torch.zeros_like(counts).index_add_(0, quantised.index.clamp(min=0), (quantised.index >= 0).double())
            of_batches.append(perplexity(here))
            counts += here
        error = error / images.numel()
        usage = (counts > 0).double().mean()
        return error, -10 * error.log10(), usage, perplexity(counts), torch.stack(of_batches).mean()

    def _surrogate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        """How many codes share the surrogate, and how much of the gradient passes: medians over some tokens."""
        images = centred(self.splits["validation"][:SHOWN])
        runs = len(next(iter(parameters.values())))
        choices = self._choices(parameters, choosers(False), [images[:1]] * runs)
        if not isinstance(self.module.quantiser, Learned) or choices[0].surrogate is None:
            return {}
        gradients = []
        for run, choice in enumerate(choices):
            own = of_one(parameters, run)
            options: dict[str, Any] = {"tau_b": choice.surrogate, "metric": self.config.metric}
            tokens, _ = functional_call(self.module, own, (images, None))
            generator = torch.Generator(self.device).manual_seed(0)
            rows, codes = defined(tokens.flatten(0, -2), own["quantiser.codes"])
            with torch.enable_grad():
                gain = dst.diagnostics.straight_through_gain(rows, codes, generator=generator, **options)
            gradients.append((dst.diagnostics.effective_codes(rows, codes, **options).median(), gain.median()))
        effective, gain = (torch.stack(part).float() for part in zip(*gradients, strict=True))
        return {"effective_codes": effective, "gain": gain}

    @torch.no_grad()
    def artefacts(self, parameters: Parameters, choosers: Choosers) -> dict[str, npt.NDArray[np.generic]]:
        """The first validation images, and as they come back by argmax, in bytes."""
        images = self.splits["validation"][:SHOWN]
        runs, x = len(next(iter(parameters.values()))), centred(images)
        choices = self._choices(parameters, choosers(False), [x[:1]] * runs)
        outputs = [functional_call(self.module, of_one(parameters, run), (x, choices[run]))[0] for run in range(runs)]
        bytes_of = ((torch.stack(outputs) + 0.5) * 255).round().clamp(0, 255).to(torch.uint8)
        return {"reconstructions": bytes_of.cpu().numpy(), "inputs": images.expand_as(bytes_of).cpu().numpy()}

    @classmethod
    def network(cls, config: Config, tensors: Parameters, estimator: dst.Estimator, deterministic: bool) -> nn.Module:
        """A module from images to images, both 0.5 less than their values from 0 to 1; a learned codebook's quantiser
        has index in and out."""
        assert isinstance(config, CodebookVAEConfig)
        module = Autoencoder(tensors["encoder.0.weight"].shape[1], config)
        module.load_state_dict(tensors)
        if not isinstance(module.quantiser, Learned):
            return Reconstruct(module, module.quantiser)
        quantiser = dst.nn.Codebook(
            config.codes, config.features, estimator, metric=config.metric, axis=1, deterministic=deterministic
        )
        quantiser.weight = module.quantiser.codes
        return Reconstruct(module, quantiser)

    def bytes_per_run(self) -> int:
        pixels = self.splits["train"][0].numel()
        return 4 * max(self.config.batch, EVALUATE) * pixels * self.config.width


class Measured(NamedTuple):
    """What is measured on a split, [runs] each."""

    error: Tensor
    """Mean squared, of pixels from 0 to 1."""
    psnr: Tensor
    usage: Tensor
    perplexity: Tensor
    of_batches: Tensor
    """The mean perplexity of a batch."""


def centred(images: Tensor) -> Tensor:
    """Bytes as numbers from -0.5 to 0.5."""
    return images.float() / 255 - 0.5


def of_one(parameters: Parameters, run: int) -> Parameters:
    """One run's tensors, as views."""
    return {name: tensor[run] for name, tensor in parameters.items()}


def perplexity(counts: Tensor) -> Tensor:
    """The effective number of codes in their counts."""
    return torch.special.entr(counts / counts.sum().clamp(min=1)).sum().exp()
