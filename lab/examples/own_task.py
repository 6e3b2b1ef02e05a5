"""A task of your own in the laboratory: tokens of four kinds, each sent to one of four linear experts.

    python lab/examples/own_task.py run routing --estimator all
    python lab/examples/own_task.py sweep routing --grid tau_f=0,0.25,0.5,1,2 tau_b=0.5,1,2
    python lab/examples/own_task.py show

Every tensor of a run has a leading run axis in front: all runs of a fleet are one program.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from dst_lab.cli.main import main  # before torch, whose threads then sleep while they wait

# isort: split
import torch
from dst_lab.fleet.chooser import Chooser
from dst_lab.fleet.task import FORWARDS, Choosers, Metrics, Parameters, Task
from dst_lab.runs import Config
from dst_lab.tasks import register
from torch import Tensor

WIDTH, KINDS, TOKENS = 8, 4, {"train": 6400, "validation": 1024}


@dataclass(frozen=True, kw_only=True)
class RoutingConfig(Config):
    """What a run is, besides estimator, seed, learning rate and batch: fields with defaults."""

    task: ClassVar[str] = "routing"
    lr: float = field(default=3e-3, metadata={"help": "Adam's learning rate"})
    dataset: str = field(default="tokens", metadata={"help": "made up"})
    batch: int = field(default=128, metadata={"help": "tokens per step"})
    experts: int = field(default=4, metadata={"help": "linear maps to choose from"})
    steps: int = field(default=1500, metadata={"help": "updates"})

    def steps_of(self, images: int) -> tuple[int, int]:
        """How many steps, and after how many each to evaluate."""
        return self.steps, max(1, self.steps // 10)


@register
class Routing(Task):
    config_type = RoutingConfig
    config: RoutingConfig

    def __init__(self, config: RoutingConfig, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        generator = torch.Generator().manual_seed(0)
        centres, maps = (torch.randn(KINDS, *shape, generator=generator) for shape in ((WIDTH,), (WIDTH, WIDTH)))
        self.splits = {}
        for name, count in TOKENS.items():
            kind = torch.randint(KINDS, (count,), generator=generator)
            x = centres[kind] + 0.5 * torch.randn(count, WIDTH, generator=generator)
            self.splits[name] = x.to(device), torch.einsum("ni,nij->nj", x, maps[kind]).to(device)
        self.images = TOKENS["train"]

    def initial(self, seed: int) -> Parameters:
        generator, experts = torch.Generator().manual_seed(seed), self.config.experts
        return {
            "router": torch.randn(WIDTH, experts, generator=generator) / WIDTH**0.5,
            "shift": torch.zeros(experts),
            "experts": 0.1 * torch.randn(experts, WIDTH, WIDTH, generator=generator),
        }

    def output(self, parameters: Parameters, x: Tensor, choose: Chooser) -> Tensor:
        """[runs, tokens, WIDTH] from tokens [runs, tokens, WIDTH]."""
        z = choose.categorical(x @ parameters["router"] + parameters["shift"].unsqueeze(1))
        return torch.einsum("rte,reij,rti->rtj", z, parameters["experts"], x)

    def loss(self, parameters: Parameters, index: Tensor, choose: Chooser) -> Tensor:
        x, y = (tensor[index] for tensor in self.splits["train"])
        return (self.output(parameters, x, choose) - y).square().mean(-1)

    def evaluate(self, parameters: Parameters, choosers: Choosers) -> Metrics:
        x, y = self.splits["validation"]
        metrics = {}
        for suffix, stochastic in FORWARDS.items():  # as in training, and by argmax
            output = self.output(parameters, x.expand(len(parameters["router"]), -1, -1), choosers(stochastic))
            metrics[f"validation_loss{suffix}"] = (output - y).square().mean((1, 2))
        return metrics

    def bytes_per_run(self) -> int:
        return 4 * (self.config.batch + TOKENS["validation"]) * self.config.experts * WIDTH * 4


if __name__ == "__main__":
    main()
