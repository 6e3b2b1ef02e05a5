"""What a run of the codebook autoencoder is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config, Defaults

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
        A default stays, since nobody may have given it."""
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
