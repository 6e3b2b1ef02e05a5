"""One number of a run's history: what two arms are compared in."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dst_lab import cards
from dst_lab.records import Array
from dst_lab.records.row import History, Row, best_of


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
    never: float = math.nan
    """What stands for a run that did not get there; NaN where every run has a number of its own."""

    def of(self, row: Row) -> float:
        """The measure of a run, or what it counts for where it diverged."""
        return self.read(row.history) if row.done else self.diverged


def best(metric: str) -> Measure:
    """The lowest (or highest) value over training, by the metric's card; evaluations with NaN are left out."""
    card = cards.metric(metric)
    sign = card.direction
    if not sign:
        raise ValueError(f"whether a high or a low {metric} is best is not known: register a card that says so")
    return Measure(f"{card.good_end} {card.label}", card.unit, sign, lambda h: best_of(_over_training(h, metric), sign))


def last(metric: str, unit: str | None = None) -> Measure:
    """The value at the last evaluation; of a vector, such as the perplexity of each latent, its mean."""
    return _measure("last", metric, lambda h: float(_over_training(h, metric)[-1]), unit)


def first(metric: str, unit: str | None = None) -> Measure:
    """The value at the first evaluation."""
    return _measure("first", metric, lambda h: float(_over_training(h, metric)[0]), unit)


def mean(metric: str) -> Measure:
    """The mean over the evaluations that recorded it, those with NaN left out; NaN where all are."""

    def read(history: History) -> float:
        values = _over_training(history, metric)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else math.nan

    return _measure("mean", metric, read)


def stopped(metric: str) -> Measure:
    """The value at the evaluation with the lowest validation loss; NaN where none has such a loss, or where the metric
    was not recorded at that step."""

    def read(history: History) -> float:
        loss, series = history["validation_loss"], history[metric]
        numbers = np.flatnonzero(~np.isnan(loss.values))
        if not len(numbers):
            return math.nan
        at = np.flatnonzero(series.steps == loss.steps[numbers[loss.values[numbers].argmin()]])
        return float(_over_training(history, metric)[at[0]]) if len(at) else math.nan

    card = cards.metric(metric)
    return Measure(f"{card.label} at the lowest validation loss", card.unit, card.direction, read)


def reach(metric: str, target: float, never: float) -> Measure:
    """The first evaluated step as good as the target; `never` where none is."""
    card = cards.metric(metric)

    def read(history: History) -> float:
        series = history[metric]
        reached = np.flatnonzero(card.direction * _over_training(history, metric) >= card.direction * target)
        return float(series.steps[reached[0]]) if len(reached) else never

    return Measure(f"steps until {card.label} reaches {target:.4g}", "steps", -1, read, never, never=never)


def after_the_end(metric: str) -> Measure:
    """One evaluation past the last step: it stands for a target that was never reached."""

    def read(history: History) -> float:
        steps = history[metric].steps
        return float(steps[-1] + (steps[-1] - steps[-2] if len(steps) > 1 else 1))

    return Measure("one evaluation past the end", "steps", -1, read)


def converged(metric: str, threshold: float) -> Measure:
    """1 where the last value lies below the threshold, else 0; a run that diverged has not converged."""
    return Measure("converged runs", "share", 1, lambda h: float(_over_training(h, metric)[-1] < threshold), 0.0, True)


def _over_training(history: History, metric: str) -> Array:
    """One number per evaluation: of a vector, such as the perplexity of each latent, its mean."""
    values = np.asarray(history[metric].values, dtype=np.float64)
    return values.reshape(len(values), -1).mean(-1)


def _measure(when: str, metric: str, read: Callable[[History], float], unit: str | None = None) -> Measure:
    """A measure as the metric's card describes it, with the card's unit where none is given. Without a good end, lower
    counts as better."""
    card = cards.metric(metric)
    return Measure(f"{when} {card.label}", card.unit if unit is None else unit, card.direction or -1, read)
