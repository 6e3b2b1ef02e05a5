"""What a run of the stochastic binary network is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config, Defaults

THRESHOLDS = tuple(10.0 ** (half / 2) for half in range(-16, -1))
"""1e-8 to 1e-1, two per decade."""


@dataclass(frozen=True, kw_only=True)
class StochasticBinaryConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "stochastic-binary"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 0.1, "tau_b": 0.7},
        "softmax_ste": {"tau": 0.2},
        "gumbel_ste": {"tau": 0.5},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=3e-3, metadata={"help": "learning rate"})
    hidden: tuple[int, ...] = field(default=(64, 64), metadata={"help": "binary neurons in each hidden layer"})
    epochs: int = field(default=12, metadata={"help": "passes over the training images"})
    diagnose_every: int = field(default=10, metadata={"help": "evaluations between measurements of activity"})

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.epochs * (images // self.batch), images // self.batch

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"dataset": "fashion-mnist", "hidden": (200, 200), "batch": 128, "epochs": 100, "lr": 1e-3}
