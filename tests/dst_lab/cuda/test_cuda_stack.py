"""The training step of dense networks by kernels against the plain step, and a run's independence of its fleet."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dst_lab.configs import Choice, Config
from dst_lab.fleet.checkpoint import Checkpoint, state
from dst_lab.fleet.cuda.noise import philox_uniform
from dst_lab.fleet.cuda.stack import dense_step, shrink
from dst_lab.fleet.loop import Fleet
from dst_lab.fleet.streams import Streams
from dst_lab.tasks import TASKS

AUTOENCODER, BINARY = "categorical-autoencoder", "stochastic-binary"
CHOICES = {
    "decoupled": Choice.make("decoupled", tau_f=0.5, tau_b=0.7),
    "softmax_ste": Choice.make("softmax_ste", tau=0.4),
    "gumbel_ste": Choice.make("gumbel_ste", tau=0.6),
    "identity_ste": Choice.make("identity_ste"),
}
TF32 = 2.0**-11
"""Half a unit in the last place of TF32, relative to the number."""
Make = Callable[..., Fleet]


@pytest.fixture
def make(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A fleet of small networks, plain or fused, with the same random numbers on every device."""

    def uniform(self: Streams, use: int, step: Any, site: int, shape: Any) -> torch.Tensor:
        return philox_uniform(self.key_of_run, torch.as_tensor(step, device=self.device), use, site, shape)

    monkeypatch.setattr(Streams, "uniform", uniform)

    def fleet(configs: Sequence[Config], fused: bool = True, checkpoint: Checkpoint | None = None) -> Fleet:
        task = TASKS[configs[0].task](configs[0], None, device)
        task.pairs_a_lone_run = False
        train = task.splits["train"]
        train = train if isinstance(train, tuple) else (train,)
        task.fused = lambda fleet: dense_step(fleet, task.links, *train) if fused else None
        return Fleet(task, configs, checkpoint)

    return fleet


def configs(name: str, choice: str = "decoupled", seeds: tuple[int, ...] = (4, 0, 4), **fields: Any) -> list[Config]:
    """Sizes that are no multiple of a block; seeds out of order and one twice."""
    small: dict[str, Any] = {"batch": 20, "epochs": 2, "hidden": (70, 20), **fields}
    make = TASKS[name].config_type
    return [
        make(estimator=CHOICES[choice], seed=seed, **{"lr": 1e-3 * (1 + place), **small})
        for place, seed in enumerate(seeds)
    ]


def step(fleet: Fleet, steps: int = 1) -> torch.Tensor:
    """Steps as they are written, not captured; the last gradient norm."""
    fleet.count.fill_(fleet.step)
    advance = fleet._counted(fleet.task.fused(fleet) or fleet._advance)
    for _ in range(steps):
        fleet._prepare()
        norm = advance()
        fleet.step += 1
    return norm()


def error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (AUTOENCODER, {}),
        (AUTOENCODER, {"hidden": (), "latents": 3, "classes": 5, "batch": 33}),
        (AUTOENCODER, {"choice": "gumbel_ste", "hidden": (40,)}),
        (AUTOENCODER, {"choice": "identity_ste", "hidden": (40,), "seeds": (5,)}),
        (BINARY, {}),
        (BINARY, {"hidden": (), "batch": 33}),
        (BINARY, {"choice": "softmax_ste", "hidden": (130,), "batch": 16}),
        (BINARY, {"choice": "gumbel_ste"}),
        (BINARY, {"choice": "identity_ste", "hidden": (30,), "seeds": (5,)}),
    ],
    ids=str,
)
def test_a_step_is_the_plain_step(make: Make, name: str, fields: dict[str, Any]) -> None:
    plain, fused = (make(configs(name, **fields), fused=fused) for fused in (False, True))
    norms = step(plain), step(fused)
    print(name, fields, "norm", error(norms[1], norms[0]), "loss", error(fused.loss_sum, plain.loss_sum))
    for key, g in plain.adam.mean.items():
        print(key, error(fused.adam.mean[key], g), error(fused.adam.square[key], plain.adam.square[key]), error(fused.parameters[key], plain.parameters[key]))
