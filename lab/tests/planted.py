"""A store with planted shapes: what the recipes want, with invented histories instead of training.

What is planted: the binary network is best at (0.1, 0.7), the autoencoder at (2.0, 0.5), the logic gates at (0.1, 2.0);
every other estimator is worse; perplexity rises and SNR falls with tau_f, the gradient's norm falls with tau_b.
"""

import math
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dst_lab.plans import Plan
from dst_lab.records import remaining, temperatures
from dst_lab.runs import CONFIGS, Config
from dst_lab.store import Record, Series, Store
from dst_lab.tasks.stochastic_binary import THRESHOLDS
from studies.paper.recipes import RECIPES

Array = npt.NDArray[np.float64]
IMAGES = {"digits": 1024, "fashion-mnist": 50_000, "mnist": 50_000, "cifar10": 45_000}
IMAGES |= {"digits-whole": 1280, "fashion-mnist-whole": 60_000, "mnist-whole": 60_000, "cifar10-whole": 50_000}
BEST = {"stochastic-binary": (0.1, 0.7), "categorical-autoencoder": (2.0, 0.5), "logic-gates": (0.1, 2.0)}
WORSE = {"decoupled": 0.0, "softmax_ste": 0.06, "gumbel_ste": 0.09, "identity_ste": 0.12, "soft": 0.03}
PROVENANCE = {"version": "0.1.0", "torch": "2.6.0", "numpy": "2.0.0", "python": "3.11.7", "system": "Linux-6.1"}
PROVENANCE |= {"machine": "x86_64", "cores": 2, "threads": 2, "device": "cpu", "fleet": 75, "seconds": 120.0}
PROVENANCE |= {"started": "2026-01-05T10:00:00Z", "ended": "2026-01-05T10:02:00Z", "commit": "0" * 40, "dirty": False}


def plant(path: Path, scale: str = "quick", recipes: Iterable[str] = tuple(RECIPES.plans)) -> Path:
    """Follow the recipes to their end, with `record` in the place of training."""
    with Store.open(path, write=True) as store:
        for name in recipes:
            pursue(RECIPES.plans[name](scale), store, lambda configs: store.put(map(record, configs)))
    return path


def pursue(plan: Plan, store: Store, train: Callable[[list[Config]], object]) -> None:
    """Round after round, until the plan wants nothing that the store lacks."""
    while lacking := remaining(plan, store)[0]:
        train(lacking)


def record(config: Config) -> Record:
    values = config.to_dict()
    # Not Python's own hash, which differs between processes.
    draw = np.random.default_rng(zlib.crc32(repr(sorted(values.items())).encode()))
    history = HISTORIES[config.task](config, draw)
    return Record(
        config=values, status="done", history=history, artefacts=_artefacts(config, draw), provenance=PROVENANCE
    )


def distance(config: Config) -> float:
    """How far a setting lies from the planted optimum: 0 there."""
    taus = temperatures(config.estimator.to_dict())
    best_f, best_b = BEST[config.task]
    forward = 0.0 if taus.tau_f is None else taus.tau_f - best_f
    backward = 0.0 if taus.tau_b is None else math.log(taus.tau_b / best_b)
    rate = math.log(config.lr / CONFIGS[config.task](estimator=config.estimator).lr)
    return 0.05 * forward**2 + 0.04 * backward**2 + 0.02 * rate**2 + WORSE[config.estimator.name]


def _steps(config: Config) -> npt.NDArray[np.int64]:
    total, between = config.steps_of(IMAGES[config.dataset])
    return np.arange(between, total + 1, between, dtype=np.int64)


def _falling(start: float, end: float, count: int, draw: np.random.Generator) -> Array:
    t = np.linspace(0, 1, count)
    return end + (start - end) * np.exp(-6 * t) + 0.003 * (start - end) * draw.standard_normal(count)


def _pair(name: str, values: Array, better: float, draw: np.random.Generator) -> dict[str, Array]:
    """A metric on validation and test data, by both forwards."""
    noise = 0.002 * np.abs(values).mean()
    shifts = (
        ("validation", "", 0.0),
        ("validation", "_argmax", better),
        ("test", "", 0.01),
        ("test", "_argmax", better),
    )
    return {
        f"{split}_{name}{suffix}": values * (1 + shift) + noise * draw.standard_normal(len(values))
        for split, suffix, shift in shifts
    }


def _series(steps: npt.NDArray[np.int64], values: dict[str, Array]) -> dict[str, Series]:
    return {name: Series(steps, array.astype(np.float32)) for name, array in values.items()}


def _network(config: Any, draw: np.random.Generator) -> dict[str, Series]:
    steps, far, taus = _steps(config), distance(config), temperatures(config.estimator.to_dict())
    tau_b = taus.tau_b or 1.0
    loss = _falling(2.3, 0.32 + far + 0.004 * draw.standard_normal(), len(steps), draw)
    accuracy = np.clip(1 - 0.36 * loss, 0.1, 1)
    norm = _falling(2.0, 0.5, len(steps), draw) / tau_b
    measured = steps[config.diagnose_every - 1 :: config.diagnose_every]
    inactive = np.clip(0.5 - 0.2 * math.log(tau_b / 0.3), 0.02, 0.95) + 0.01 * draw.standard_normal(len(measured))
    spread = np.log10(0.02 / tau_b) + np.array([0.0])
    below = 1 / (1 + np.exp(-2.0 * (np.log10(THRESHOLDS) - spread))) * np.ones((len(measured), 1))
    values = {"train_loss": loss * 0.9, "gradient_norm": norm, **_pair("loss", loss, -0.02, draw)}
    values |= _pair("accuracy", accuracy, 0.01, draw)
    return _series(steps, values) | _series(measured, {"inactive": inactive, "inactive_below": below})


def _autoencoder(config: Any, draw: np.random.Generator) -> dict[str, Series]:
    steps, far = _steps(config), distance(config)
    taus = temperatures(config.estimator.to_dict())
    tau_f = taus.tau_f or 0.0
    collapsed = config.estimator.name != "decoupled" and draw.random() < 0.4
    loss = _falling(206.0, 202.0 if collapsed else 110 + 150 * far + draw.standard_normal(), len(steps), draw)
    top = 1.4 if collapsed else 4 + 3.9 * tau_f / (tau_f + 0.3) - 4 * WORSE[config.estimator.name]
    perplexity = _falling(1.5, top, len(steps), draw)[:, None] + 0.05 * draw.standard_normal((1, config.latents))
    norm = _falling(40.0, 10.0, len(steps), draw) / (taus.tau_b or 1.0)
    values = {"train_loss": loss * 0.99, "gradient_norm": norm, **_pair("loss", loss, -0.01, draw)}
    history = _series(steps, values | {"perplexity": perplexity.clip(1, config.classes)})
    if config.snr_every:
        measured = steps[config.snr_every - 1 :: config.snr_every]
        snr = 0.025 + 0.4 * math.exp(-tau_f) + 0.01 * draw.standard_normal(len(measured))
        history |= _series(measured, {"snr": snr, "snr_median": snr * 0.9, "snr_constant": np.zeros(len(measured))})
    return history


def _logic(config: Any, draw: np.random.Generator) -> dict[str, Series]:
    steps, far = _steps(config), distance(config)
    loss = _falling(2.3, 1.1 + 2 * far + 0.01 * draw.standard_normal(), len(steps), draw)
    wide = np.linspace(0, 2.5 * (1 + 20 * far), 16)
    share = np.exp(-wide) / np.exp(-wide).sum()
    histogram = np.round(share * config.width * config.layers) * np.ones((len(steps), 1))
    shares = histogram / histogram.sum(-1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(-1)
    values = {"train_loss": loss * 0.95, "gradient_norm": _falling(1, 0.3, len(steps), draw)}
    values |= _pair("loss", loss, 0.02, draw)
    values |= _pair("accuracy", np.clip(0.95 - 0.3 * loss, 0.1, 1), -0.02, draw)
    values |= {"gate_histogram": histogram, "gate_perplexity": np.exp(entropy)}
    values |= {"unused_gates": (histogram == 0).sum(-1), "dead_gates": np.full(len(steps), min(1.0, 2 * far))}
    return _series(steps, values)


def _bias(config: Any, draw: np.random.Generator) -> dict[str, Series]:
    steps = np.arange(config.evaluate_every, config.steps + 1, config.evaluate_every)
    taus = temperatures(config.estimator.to_dict())
    tau_f, tau_b = taus.tau_f or 0.5, taus.tau_b or 0.5
    loss = _falling(45.0, 30.0, len(steps), draw)
    bias = (0.2 + abs(math.log(tau_b / tau_f)) + WORSE[config.estimator.name]) * np.exp(
        0.02 * draw.standard_normal(len(steps))
    )
    values = {"train_loss": loss, "gradient_norm": loss / 10, "validation_loss": loss * 1.02, "exact_norm": loss / 20}
    values |= {"bias": bias, "variance": 3 * tau_f / tau_b**2 * (1 + bias), "cosine": 1 / (1 + bias)}
    spread = (0 if config.estimator.name == "identity_ste" else 2) * bias
    values |= {"bias_rescaled": bias * 0.3, "variance_rescaled": spread, "rescale": 1 + bias, "bias_floor": bias * 0}
    return _series(steps, values)


HISTORIES = {
    "stochastic-binary": _network,
    "categorical-autoencoder": _autoencoder,
    "logic-gates": _logic,
    "bias-variance": _bias,
}


def _artefacts(config: Any, draw: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    if config.task != "categorical-autoencoder":
        return {}
    side = 8 if config.dataset == "digits" else 28
    y, x = np.mgrid[:side, :side] / side
    centres = np.linspace(0.3, 0.7, 8)
    blur = 0.15 + distance(config)
    images = [np.exp(-((x - c) ** 2 + (y - 1 + c) ** 2) / blur**2) for c in centres]
    pixels = (np.stack(images).reshape(8, -1) * 255).round().astype(np.uint8)
    return {
        "inputs": pixels[::-1],
        "reconstructions": pixels,
        "codes": draw.integers(0, config.classes, (8, config.latents)).astype(np.uint8),
    }
