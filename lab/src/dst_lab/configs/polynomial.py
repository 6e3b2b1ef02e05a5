"""What a run of polynomial programming is."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dst_lab.configs.config import Config


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
