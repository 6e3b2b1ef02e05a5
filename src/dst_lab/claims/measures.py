"""One number of a run's history: what two arms are compared in."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dst_lab.store import Series

History: TypeAlias = Mapping[str, Series]


@dataclass(frozen=True)
class Measure:
    """A number of a run, in words, with its good end."""

    name: str
    unit: str
    direction: int
    """1 where higher is better, -1 where lower is."""
    read: Callable[[History], float]
    """KeyError where the run did not record the metric."""
    diverged: float = math.nan
    """What a run counts for that diverged; NaN: the worst finite value of the arms compared."""
    yes_or_no: bool = False
    """1 or 0 of a run, so that a mean is a share of runs, those that diverged among them; it has no t interval."""
    by_sign: bool = False
    """Compared by which run of a pair is better, not by how much."""
    never: float = math.nan
    """What stands for a run that did not get there; NaN where every run has a number of its own."""


def best(metric: str, unit: str, direction: int) -> Measure:
    """The lowest (or highest) value over training."""
    word = "highest" if direction > 0 else "lowest"
    return Measure(
        f"{word} {words(metric)}", unit, direction, lambda h: direction * float((direction * h[metric].values).max())
    )


def last(metric: str, unit: str, direction: int) -> Measure:
    """The value at the last evaluation; of a vector, such as the perplexity of each latent, its mean."""
    return Measure(f"last {words(metric)}", unit, direction, lambda h: float(np.mean(h[metric].values[-1])))


def first(metric: str, unit: str, direction: int) -> Measure:
    """The value at the first evaluation."""
    return Measure(f"first {words(metric)}", unit, direction, lambda h: float(np.mean(h[metric].values[0])))


def mean(metric: str, unit: str, direction: int) -> Measure:
    """The mean over the evaluations that recorded it, those with NaN left out; NaN where all are."""

    def read(history: History) -> float:
        values = history[metric].values
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else math.nan

    return Measure(f"mean {words(metric)}", unit, direction, read)


def stopped(metric: str, unit: str, direction: int) -> Measure:
    """The value at the evaluation with the lowest validation loss."""

    def read(history: History) -> float:
        return float(history[metric].values[int(history["validation_loss"].values.argmin())])

    return Measure(f"{words(metric)} at the lowest validation loss", unit, direction, read)


def inactive_below(index: int, threshold: float) -> Measure:
    """The share of neurons whose activity lies below one of the absolute thresholds, at the end."""
    name = f"neurons with activity below {threshold:.1e}"
    return Measure(name, "share", -1, lambda h: float(h["inactive_below"].values[-1][index]))


def active() -> Measure:
    """The share of active neurons at the end."""
    return Measure("active neurons", "share", 1, lambda h: 1 - float(h["inactive"].values[-1]))


def gap() -> Measure:
    """How far accuracy by the training forward and by the discretised network lie apart at the last evaluation."""

    def read(history: History) -> float:
        drawn, fixed = (history[f"validation_accuracy{suffix}"].values[-1] for suffix in ("", "_argmax"))
        return abs(float(fixed) - float(drawn))

    return Measure("gap between trained and discretised validation accuracy", "share", -1, read)


def reach(metric: str, target: float, direction: int, never: float) -> Measure:
    """The first evaluated step as good as the target; `never` where none is."""

    def read(history: History) -> float:
        series = history[metric]
        there = np.flatnonzero(direction * series.values >= direction * target)
        return float(series.steps[there[0]]) if len(there) else never

    return Measure(f"steps until {words(metric)} reaches {target:.4g}", "steps", -1, read, never, never=never)


def after_the_end(metric: str) -> Measure:
    """One evaluation past the last step: when a run gets there that never does."""

    def read(history: History) -> float:
        steps = history[metric].steps
        return float(steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1))

    return Measure("one evaluation past the end", "steps", -1, read)


def converged(metric: str, threshold: float) -> Measure:
    """1 where the last value lies below the threshold, else 0; a run that diverged has not converged."""
    return Measure("converged runs", "share", 1, lambda h: float(h[metric].values[-1] < threshold), 0.0, True)


def words(metric: str) -> str:
    """ "validation_accuracy_argmax" -> "validation accuracy (argmax)"."""
    text = metric.removesuffix("_argmax").replace("_", " ")
    return f"{text} (argmax)" if metric.endswith("_argmax") else text
