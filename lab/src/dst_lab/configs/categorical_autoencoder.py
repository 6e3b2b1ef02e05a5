"""What a run of the categorical autoencoder is."""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.configs.config import Config, Defaults


@dataclass(frozen=True, kw_only=True)
class CategoricalAutoencoderConfig(Config):
    """Defaults are the quick scale; see `quick` and `paper`."""

    task: ClassVar[str] = "categorical-autoencoder"
    defaults: ClassVar[Defaults] = {
        "decoupled": {"tau_f": 2.0, "tau_b": 0.5},
        "softmax_ste": {"tau": 3.0},
        "gumbel_ste": {"tau": 2.0},
    }
    """Decoupled ST at the paper's temperatures, the others at what our search at the paper's scale chose."""
    lr: float = field(default=2e-3, metadata={"help": "learning rate"})
    hidden: tuple[int, ...] = field(default=(64, 32), metadata={"help": "widths of the encoder; mirrored to decode"})
    latents: int = field(default=4, metadata={"help": "categorical variables"})
    classes: int = field(default=8, metadata={"help": "classes of each"})
    epochs: int = field(default=30, metadata={"help": "passes over the training images"})
    snr_every: int = field(default=0, metadata={"help": "evaluations between measurements of SNR; 0: none", "least": 0})
    snr_passes: int = field(default=1024, metadata={"help": "passes for one SNR", "least": 2})

    def steps_of(self, images: int) -> tuple[int, int]:
        return self.epochs * (images // self.batch), images // self.batch

    @classmethod
    def paper(cls) -> dict[str, object]:
        return {"dataset": "mnist", "hidden": (512, 256), "batch": 200, "epochs": 160, "lr": 1e-3}
