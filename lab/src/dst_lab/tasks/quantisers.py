"""How a token becomes a code: the estimators over a codebook, and four published methods.

Each module takes tokens [N, D] and gives what is decoded, the codes' numbers and, per token, the weighted losses that
it adds. All find the nearest code by `dst.codebook`, so that none of them builds N x K distances. The others' methods
compute what `vector-quantize-pytorch` computes, which tests/clients holds them to.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst
from dst_lab.runs import Config, Defaults

QUANTISERS = {
    "codebook": "the estimator over a learned codebook",
    "ema": "VQ-VAE, codes as moving means",
    "rotation": "the same with the rotation trick",
    "simvq": "frozen codes behind a linear layer",
    "fsq": "rounded scalars, no codebook",
}
"""How a token becomes a code, by name."""
STARTS = {"rows": "tokens of training images", "normal": "from N(0, 1 / features)", "unit": "from N(0, 1)"}
"""What codes are before training."""
METRICS = ("dot", "cosine", "l2")
READ_BY = {
    "metric": ("codebook",),
    "start": ("codebook", "ema", "rotation"),
    "commitment": ("codebook", "ema", "rotation", "simvq"),
    "codebook": ("codebook",),
    "entropy": ("codebook",),
    "entropy_tau": ("codebook",),
    "decay": ("ema", "rotation"),
}
"""The quantisers that read an option."""
ALWAYS = {
    ("ema", "metric"): "l2",
    ("rotation", "metric"): "l2",
    ("simvq", "metric"): "l2",
    ("simvq", "start"): "normal",
}
"""What a quantiser does that does not read an option: this may be given, too."""
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class CodebookVAEConfig(Config):
    """Defaults are the quick scale, on small grey images; `paper` is the network of Sonnet's notebook."""

    task: ClassVar[str] = "codebook-vae"
    defaults: ClassVar[Defaults] = {"decoupled": {"tau_f": 0.0, "tau_b": 0.1}, "softmax_ste": {"tau": 0.1}}
    lr: float = field(default=1e-3, metadata={"help": "learning rate"})
    batch: int = field(default=32, metadata={"help": "images per step"})
    quantiser: str = field(
        default="codebook", metadata={"help": "; ".join(f"{name}: {text}" for name, text in QUANTISERS.items())}
    )
    codes: int = field(default=64, metadata={"help": "K, how many codes there are", "least": 2})
    features: int = field(default=16, metadata={"help": "D, of a token and of a code"})
    width: int = field(default=32, metadata={"help": "channels of the network; 128 in Sonnet's", "least": 4})
    metric: str = field(
        default="cosine",
        metadata={
            "help": "the score of a code: dot, cosine or l2; all but the quantiser codebook take l2, whatever this says"
        },
    )
    start: str = field(
        default="rows",
        metadata={
            "help": "codes before training; "
            + "; ".join(f"{k}: {v}" for k, v in STARTS.items())
            + "; simvq always has normal"
        },
    )
    commitment: float = field(default=0.25, metadata={"help": "weight of |x - sg q|^2; not of fsq"})
    codebook: float = field(default=1.0, metadata={"help": "weight of |sg x - q|^2, of codebook; of simvq it is 1"})
    entropy: float = field(default=0.0, metadata={"help": "weight of IBQ's entropy penalty, of codebook"})
    entropy_tau: float = field(default=0.1, metadata={"help": "its temperature; nothing where the weight is 0"})
    decay: float = field(default=0.99, metadata={"help": "of the means of ema and rotation, per step"})
    precision: str = field(default="float32", metadata={"help": "of convolutions and scores: float32 or bfloat16"})
    steps: int = field(default=1000, metadata={"help": "updates"})
    evaluations: int = field(default=4, metadata={"help": "over training, evenly spaced"})

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = {"quantiser": QUANTISERS, "start": STARTS, "metric": METRICS, "precision": PRECISIONS}
        for name, words in choices.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be one of {', '.join(words)}, got {getattr(self, name)!r}")
        for name in ("commitment", "codebook", "entropy"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is a weight and must be at least 0, got {getattr(self, name)}")
        if self.entropy_tau <= 0 or not 0 <= self.decay < 1:
            raise ValueError(
                f"entropy_tau must be above 0 and decay from 0 to below 1, got entropy_tau={self.entropy_tau} and "
                f"decay={self.decay}"
            )
        if self.quantiser != "codebook" and self.estimator.name != "identity_ste":
            raise ValueError(
                f"quantiser={self.quantiser} sends the gradient past the codes in its own way: take the estimator "
                f"identity-ste with it, got {self.estimator.name}"
            )
        self._check_read()
        if self.quantiser == "fsq" and (self.codes < 4 or self.codes & (self.codes - 1)):
            raise ValueError(f"fsq takes a power of 2 from 4 on for codes, got codes={self.codes}")

    def _check_read(self) -> None:
        """Raise where an option is given that the quantiser does not read: runs that are one would be recorded as two.
        A default is let through: it may not have been given."""
        for name, readers in READ_BY.items():
            value, always = getattr(self, name), ALWAYS.get((self.quantiser, name))
            if self.quantiser not in readers and value not in (self.__dataclass_fields__[name].default, always):
                does = f" (it is always {always})" if always else ""
                raise ValueError(
                    f"quantiser={self.quantiser} does not read {name}{does}, which is for quantiser="
                    f"{' or '.join(readers)}: leave it out, got {name}={value}"
                )

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, max(1, self.steps // self.evaluations)

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {
            "dataset": "cifar10", "batch": 256, "codes": 512, "features": 64, "width": 128, "steps": 1000,
            "precision": "bfloat16",
        }  # fmt: skip


Choose = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(tokens, codes) -> (chosen codes with the estimator's gradient, their numbers)."""
_SMOOTH = 1e-5
"""Added to every code's count before the means are taken."""


class Quantised(NamedTuple):
    """What becomes of N tokens."""

    q: Tensor
    """[N, D]"""
    index: Tensor  # type: ignore[assignment]
    """[N]; -1 where a token is NaN."""
    losses: Tensor
    """[N], weighted."""


class Quantiser(nn.Module):
    """What all have in common: sizes, weights, and how numbers are rounded before they are compared."""

    moves: ClassVar[bool] = False
    """True where a pass of training moves its buffers; elsewhere they are constants."""

    def __init__(self, config: CodebookVAEConfig) -> None:
        super().__init__()
        self.config = config
        self.dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32

    def forward(self, tokens: Tensor, choose: Choose) -> Quantised:
        raise NotImplementedError

    def start(self, tokens: Tensor | None) -> None:
        """Codes before training: from these tokens, or as the method has them where there are none."""

    def nearest(self, tokens: Tensor, codes: Tensor) -> Tensor:
        """The number of the nearest code by distance, [N]."""
        return dst.codebook.identity_ste(*defined(tokens.detach().to(self.dtype), codes.detach().to(self.dtype)))[1]

    def commitment(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        return self.config.commitment * (tokens - chosen.detach()).square().mean(-1)


class Learned(Quantiser):
    """A codebook that learns by gradients: through the estimator, and towards its tokens."""

    def __init__(self, config: CodebookVAEConfig) -> None:
        super().__init__(config)
        self.codes = nn.Parameter(torch.randn(config.codes, config.features) / config.features**0.5)

    @torch.no_grad()
    def start(self, tokens: Tensor | None) -> None:
        if tokens is not None:
            self.codes.copy_(some_rows(tokens, len(self.codes)))
        elif self.config.start == "unit":
            self.codes.mul_(self.config.features**0.5)

    def forward(self, tokens: Tensor, choose: Choose) -> Quantised:
        config = self.config
        x, codes = defined(tokens.to(self.dtype), self.codes.to(self.dtype))
        q, index = choose(x, codes)
        chosen = self.codes.index_select(0, index.clamp(min=0))
        losses = self.commitment(tokens, chosen)
        losses = losses + config.codebook * (tokens.detach() - chosen).square().mean(-1)
        if config.entropy and torch.is_grad_enabled():
            distribution = dst.codebook.distribution(x, codes, tau=config.entropy_tau, metric=config.metric)
            losses = losses + config.entropy * distribution.penalty
        return Quantised(q.to(tokens.dtype), index, losses)


class MovingMeans(Quantiser):
    """VQ-VAE whose codes are moving means of their tokens. `rotate`: the gradient by the rotation trick."""

    moves = True
    codes: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, config: CodebookVAEConfig) -> None:
        super().__init__(config)
        codes = torch.randn(config.codes, config.features) / config.features**0.5
        self.register_buffer("codes", codes)
        self.register_buffer("counts", torch.ones(config.codes))
        self.register_buffer("sums", codes.clone())

    @torch.no_grad()
    def start(self, tokens: Tensor | None) -> None:
        if tokens is not None:
            self.codes.copy_(some_rows(tokens, len(self.codes)))
        elif self.config.start == "unit":
            self.codes.mul_(self.config.features**0.5)
        self.sums.copy_(self.codes)

    def forward(self, tokens: Tensor, choose: Choose) -> Quantised:
        index = self.nearest(tokens, self.codes)
        chosen = self.codes.index_select(0, index.clamp(min=0))
        if torch.is_grad_enabled():
            self._follow(tokens.detach(), index)
        path = rotated if self.config.quantiser == "rotation" else copied
        return Quantised(path(tokens, chosen), index, self.commitment(tokens, chosen))

    @torch.no_grad()
    def _follow(self, tokens: Tensor, index: Tensor) -> None:
        """Move the means by one batch."""
        rate, known = 1 - self.config.decay, (index >= 0).to(tokens.dtype)
        at = index.clamp(min=0)
        counts = torch.zeros_like(self.counts).index_add_(0, at, known)
        sums = torch.zeros_like(self.sums).index_add_(0, at, torch.where(index[:, None] >= 0, tokens, 0.0))
        self.counts.lerp_(counts, rate)
        self.sums.lerp_(sums, rate)
        total = self.counts.sum()
        smooth = (self.counts + _SMOOTH) / (total + len(self.counts) * _SMOOTH) * total
        self.codes.copy_(self.sums / smooth[:, None])


class Projected(Quantiser):
    """SimVQ: codes that never move, behind a linear layer that learns."""

    frozen: Tensor

    def __init__(self, config: CodebookVAEConfig) -> None:
        super().__init__(config)
        self.project = nn.Linear(config.features, config.features, bias=False)
        self.register_buffer("frozen", torch.randn(config.codes, config.features) / config.features**0.5)

    def forward(self, tokens: Tensor, choose: Choose) -> Quantised:
        index = self.nearest(tokens, self.project(self.frozen))
        chosen = self.project(self.frozen.index_select(0, index.clamp(min=0)))
        # The projection learns by the second term alone: under Adam a weight on it would change nothing.
        losses = self.commitment(tokens, chosen) + (tokens.detach() - chosen).square().mean(-1)
        return Quantised(rotated(tokens, chosen), index, losses)


class Rounded(Quantiser):
    """FSQ: a few numbers per token, each rounded to one of its levels; the gradient as if it were not."""

    levels: Tensor

    def __init__(self, config: CodebookVAEConfig) -> None:
        super().__init__(config)
        levels = levels_of(config.codes)
        self.project_in = nn.Linear(config.features, len(levels))
        self.project_out = nn.Linear(len(levels), config.features)
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float32))

    def forward(self, tokens: Tensor, choose: Choose) -> Quantised:
        # All levels are even: half a step off, so that rounding gives as many as there are.
        half = (self.levels - 1) * (1 + 1e-3) / 2
        bounded = torch.tanh(self.project_in(tokens) + torch.atanh(0.5 / half)) * half - 0.5
        whole = bounded + (bounded.round() - bounded).detach()
        basis = torch.cumprod(self.levels, 0) / self.levels
        index = ((whole.detach().round() + self.levels // 2) * basis).sum(-1).long()
        q = self.project_out(whole / (self.levels // 2))
        return Quantised(q, index, torch.zeros_like(tokens[:, 0]))


KINDS: dict[str, type[Quantiser]] = {
    "codebook": Learned, "ema": MovingMeans, "rotation": MovingMeans, "simvq": Projected, "fsq": Rounded,
}  # fmt: skip
"""The module of each of the config's names."""


def levels_of(codes: int) -> list[int]:
    """The levels of FSQ for a power of 2: as many eights as there can be, the rest fours, which make it exact."""
    bits = codes.bit_length() - 1
    fours = -bits % 3
    return [8] * ((bits - 2 * fours) // 3) + [4] * fours


def defined(tokens: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Both as the library takes them: on a CPU it refuses codes that are not finite, as those of a run that diverges.
    Its tokens are then NaN, which have no code, and so is its loss."""
    if codes.device.type == "cpu" and not codes.isfinite().all():
        return tokens * torch.nan, torch.ones_like(codes)
    return tokens, codes


def some_rows(tokens: Tensor, count: int) -> Tensor:
    """Random rows of tokens [N, D], all different where there are enough; by torch's global generator of the CPU."""
    pick = torch.randperm(len(tokens)).repeat(-(-count // len(tokens)))[:count]
    return tokens[pick.to(tokens.device)]


def copied(tokens: Tensor, chosen: Tensor) -> Tensor:
    """The codes, with the tokens' gradient copied."""
    return tokens + (chosen - tokens).detach()


def rotated(tokens: Tensor, chosen: Tensor) -> Tensor:
    """The codes as the tokens turned and stretched onto them, turn and stretch held constant (Fifty et al., 2024)."""
    with torch.no_grad():
        lengths, of_chosen = (t.norm(dim=-1, keepdim=True) for t in (tokens, chosen))
        u, v = tokens / lengths.clamp(min=1e-6), chosen / of_chosen.clamp(min=1e-6)
        w = F.normalize(u + v, dim=-1, eps=1e-6)
        stretch = of_chosen / lengths.clamp(min=1e-6)
    along = (tokens * w).sum(-1, keepdim=True) * w
    turned = tokens - 2 * along + 2 * (tokens * u).sum(-1, keepdim=True) * v
    return turned * stretch
