"""What a run of the categorical variational autoencoder is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config

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
