"""Worlds with a known truth, and the rows that one would find in them."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from dst_lab.plans import FRESH
from dst_lab.plans.plan import value_of
from dst_lab.records import Row, Rows
from dst_lab.runs import Config
from dst_lab.store import Run, Series
from dst_lab.tasks.stochastic_binary import THRESHOLDS
from studies.paper.recipes import RECIPES

STEPS = np.arange(10, 130, 10)
START = np.append(np.linspace(0.45, -0.15, 11), 0.0)
"""How much worse a run is at each evaluation than at its end; it overfits a little."""


@dataclass(frozen=True)
class World:
    """Every run has a goodness: `gain` for Decoupled ST (or by the role of the estimator), less `off` or `on` for its
    settings off or on the diagonal, plus an offset that all runs of a seed share, plus skewed noise."""

    number: int = 0
    gain: float = 0.0
    baseline: dict[str, float] = field(default_factory=dict)
    """Goodness by the estimator's name."""
    on: float = 0.0
    off: float = 0.0
    trend: float = 0.0
    """How the four quantities follow their own temperature: 1 as the paper says, -1 against it."""
    power: float = -1.0
    """Of tau_b in the gradient norm, times the trend."""
    cross: float = 0.0
    """How they follow the other one."""
    lost: Callable[[Config], bool] = lambda config: False
    diverges: Callable[[Config], bool] = lambda config: False
    scale: str = "quick"

    @cached_property
    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.number)

    @cached_property
    def found(self) -> dict[Config, Row]:
        return {}

    def goodness(self, config: Config) -> float:
        name = config.estimator.name
        value = self.gain if name == "decoupled" else self.baseline.get(name, 0.0)
        if name == "decoupled":
            value -= self.on if value_of(config, "tau_f") == value_of(config, "tau_b") else self.off
        shared = zlib.crc32(f"{self.number} {config.seed}".encode()) / 2**32
        return value + 0.2 * shared + 0.1 * float(self.random.exponential())

    def find(self, config: Config) -> Row | None:
        if self.lost(config):
            return None
        if config not in self.found:
            history = History(self, config, self.goodness(config))
            name = f"{config.task} {config.estimator.to_dict()} {config.lr} {config.seed}"
            status = "diverged" if self.diverges(config) else "done"
            run = Run(id=name, config=config.to_dict(), status=status, detail={}, provenance_id="")
            self.found[config] = Row(run, lambda: history)
        return self.found[config]

    def lookup(self, config: Config) -> float | None:
        row = self.find(config)
        if row is None:
            return None
        return float(row.history["validation_loss"].values.min()) if row.done else math.inf

    @property
    def rows(self) -> Rows:
        return Rows(RECIPES, self.scale, self.find, self.lookup)


class History(dict[str, Series]):
    """The metrics of one run, each made when it is asked for."""

    def __init__(self, world: World, config: Config, goodness: float) -> None:
        super().__init__()
        self.world, self.config, self.goodness = world, config, goodness

    def __missing__(self, name: str) -> Series:
        steps = STEPS[-1:] if name.startswith("inactive") else STEPS
        self[name] = Series(steps, self.values_of(name, self.goodness - START[-len(steps) :]))
        return self[name]

    def values_of(self, name: str, good: Any) -> Any:
        noise = 0.01 * self.world.random.standard_normal(len(good))
        if "loss" in name:
            return 10 - good + noise
        if "accuracy" in name:
            return 0.5 + good / 20 + noise / 20
        followed = self.followed(name)
        if name == "perplexity":
            return np.stack([3 + good / 10 + followed + noise] * 4, -1)
        if name == "inactive_below":
            return np.stack([0.5 - good / 20 - followed / 10 + noise] * len(THRESHOLDS), -1)
        if name == "inactive":
            return 0.5 - good / 20 - followed / 10 + noise
        if name in ("snr", "gradient_norm"):
            return np.exp(followed + noise)
        if name in ("gate_perplexity", "unused_gates"):
            return 8 + (good if name == "gate_perplexity" else -good) / 10 + noise
        raise KeyError(name)

    def followed(self, name: str) -> float:
        """What the temperatures add to a quantity."""
        if self.config.estimator.name != "decoupled" or self.config.seed >= FRESH:
            return 0.0
        tau_f, tau_b = (math.log(max(0.05, float(value_of(self.config, tau)))) for tau in ("tau_f", "tau_b"))
        own, other = {"perplexity": (tau_f, tau_b), "snr": (-tau_f, tau_b), "gradient_norm": (tau_b, tau_f)}.get(
            name, (tau_b, tau_f)
        )
        power = self.world.power if name == "gradient_norm" else 1.0
        return self.world.trend * power * own + self.world.cross * other


@pytest.fixture
def world() -> type[World]:
    return World
