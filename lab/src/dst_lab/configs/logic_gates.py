"""What a run of the logic gate network is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config, Defaults


@dataclass(frozen=True, kw_only=True)
class LogicGatesConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "logic-gates"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 0.1, "tau_b": 2.0},
        "softmax_ste": {"tau": 0.5},
        "gumbel_ste": {"tau": 0.5},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=0.03, metadata={"help": "learning rate"})
    thresholds: int = field(default=3, metadata={"help": "bits per pixel and channel"})
    layers: int = field(default=2, metadata={"help": "layers of gates"})
    width: int = field(default=640, metadata={"help": "gates in a layer"})
    wiring: str = field(default="unique", metadata={"help": "unique or random"})
    group_tau: float = field(default=10 / 3, metadata={"help": "what the class sums are divided by"})
    residual: float = field(default=0.0, metadata={"help": "added to the logit of the gate that passes A through"})
    augment: str = field(
        default="none",
        metadata={"help": "none, or mirror: train on every image and on its mirror image", "omit": True},
    )
    steps: int = field(default=250, metadata={"help": "training steps"})
    evaluate_every: int = field(default=25, metadata={"help": "steps between evaluations"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wiring not in ("unique", "random"):
            raise ValueError(f"wiring must be unique or random, got {self.wiring!r}")
        if self.augment not in ("none", "mirror"):
            raise ValueError(f"augment must be none or mirror, got {self.augment!r}")
        if not self.group_tau > 0:
            raise ValueError(f"group_tau must be above 0, got {self.group_tau}")

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.steps, self.evaluate_every

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {
            "dataset": "cifar10", "layers": 4, "width": 12_000, "batch": 100, "steps": 200_000, "lr": 0.01,
            "group_tau": 100 / 3, "evaluate_every": 2_000,
        }  # fmt: skip
