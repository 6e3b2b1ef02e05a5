"""What a run of the measurement of bias and variance is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config

MOST_CODES = 4096


@dataclass(frozen=True, kw_only=True)
class BiasVarianceConfig(Config):
    """The same at both scales; what differs is how many temperatures and seeds a recipe takes."""

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
