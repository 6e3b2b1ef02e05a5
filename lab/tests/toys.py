"""An estimator, a rule for temperatures and a task of one's own, as a user would write them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from dst_lab.fleet.task import Task
from dst_lab.runs import Config
from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators import Estimator
from decoupled_st.estimators.spec import TEMPERATURE
from decoupled_st.temperatures import Rule, State, Taus


def _through(z: Tensor, logits: Tensor, grad_scale: Any) -> Tensor:
    path = logits * (1 + 2 * z) * grad_scale
    return z + (path - path.detach())


def categorical(
    logits: Tensor,
    *,
    tau: Any = 1.0,
    dim: int = -1,
    mask: Any = None,
    generator: Any = None,
    noise: Any = None,
    grad_scale: Any = 1.0,
) -> Tensor:
    given = {"tau": tau, "dim": dim, "mask": mask, "generator": generator, "noise": noise}
    return _through(dst.categorical.softmax_ste(logits.detach(), **given), logits, grad_scale)


def binary(
    logits: Tensor, *, tau: Any = 1.0, generator: Any = None, noise: Any = None, grad_scale: Any = 1.0
) -> Tensor:
    given = {"tau": tau, "generator": generator, "noise": noise}
    return _through(dst.binary.softmax_ste(logits.detach(), **given), logits, grad_scale)


@dataclass(frozen=True, kw_only=True)
class ToySTE(Estimator):
    """A sample at tau; the gradient unchanged, but three times as long where the category was drawn."""

    name: ClassVar[str] = "toy_ste"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    label: ClassVar[str] = "Toy STE"
    surrogate: ClassVar[str] = "scaled identity"
    backward: ClassVar = None
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> Estimator:
        return dst.IdentitySTE()


@dataclass(frozen=True, kw_only=True)
class Falling(Rule):
    """tau_f = start / (passes so far + 1), tau_b = 1 + the largest logit of the pass before."""

    name: ClassVar[str] = "falling"
    start_at: float = 2.0

    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        shape = tuple(runs)
        return {"passes": torch.zeros(shape, device=device), "largest": torch.zeros(shape, device=device)}

    def observe(self, state: State, view: Any) -> State:
        largest = view.logits.abs().flatten(view.run_dims).amax(-1)
        return {"passes": state["passes"] + 1, "largest": largest}

    def temperatures(self, state: State, view: Any) -> Taus:
        return Taus(view.spread(self.start_at / (state["passes"] + 1)), view.spread(1 + state["largest"]))


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    task: ClassVar[str] = "toy"
    batch: int = field(default=8, metadata={"help": "examples"})

    def steps_of(self, images: int) -> tuple[int, int]:
        return 4, 2


class Toy(Task):
    """A line through 32 points, two numbers a run."""

    config_type = ToyConfig

    def __init__(self, config: Config, source: str | None, device: torch.device) -> None:
        super().__init__(config, source, device)
        self.x, self.images = torch.linspace(-1, 1, 32), 32

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.full((1,), float(seed + 1)), "b": torch.zeros(1)}

    def loss(self, parameters: Any, index: torch.Tensor, choose: Any) -> torch.Tensor:
        return (parameters["w"] * self.x[index] + parameters["b"] - 1).square()

    def evaluate(self, parameters: Any, choosers: Any) -> dict[str, torch.Tensor]:
        return {"validation_loss": (parameters["w"] * self.x + parameters["b"] - 1).square().mean(-1)}

    def bytes_per_run(self) -> int:
        return 1000
