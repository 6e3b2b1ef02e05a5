"""A run with its history, and numbers over several of them."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dst_lab.cards import BEST, metric
from dst_lab.estimators import kinds
from dst_lab.store import Run, Series

Array: TypeAlias = npt.NDArray[np.float64]
History: TypeAlias = Mapping[str, Series]


class Temperatures(NamedTuple):
    """Forward and backward temperature, None where there is none, and the schedules they follow, "" where constant."""

    tau_f: float | None
    tau_b: float | None
    schedule: str


def temperatures(estimator: Mapping[str, Any]) -> Temperatures:
    """What `config["estimator"]` means in tau_f (how the choice is drawn) and tau_b (how the gradient flows).

    | estimator | tau_f | tau_b |
    |---|---|---|
    | decoupled | tau_f | tau_b |
    | softmax STE | tau | tau |
    | Gumbel STE | 1: it always draws at temperature 1 | tau |
    | identity STE | 0: the argmax | none: the gradient passes unchanged |
    | soft | none: nothing is drawn | tau |

    A schedule such as "2.0:0.25:linear" counts with its first value; a rule such as "self" has none. An estimator that
    this process does not know has the two that its config names.
    """
    sources = _sources(estimator)
    given = {name: estimator.get(of) if isinstance(of, str) else of for name, of in sources.items()}
    schedule = ";".join(f"{name}={value}" for name, value in given.items() if isinstance(value, str))
    return Temperatures(_first(given["tau_f"]), _first(given["tau_b"]), schedule)


def shown_by(estimator: Mapping[str, Any]) -> set[str]:
    """The fields of `config["estimator"]` that its two temperatures are made of."""
    return {source for source in _sources(estimator).values() if isinstance(source, str)}


def _sources(estimator: Mapping[str, Any]) -> dict[str, str | float | None]:
    """The field, or the number, that each of the two temperatures comes from."""
    kind = kinds().get(str(estimator["name"]).replace("-", "_"))
    return {"tau_f": kind.draw, "tau_b": kind.backward} if kind else {"tau_f": "tau_f", "tau_b": "tau_b"}


def _first(value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        return float(value.split(":")[0]) if isinstance(value, str) else float(value)
    except ValueError:
        return None  # a rule, by its name


@dataclass(frozen=True, eq=False)
class Row:
    """A run with its history, which is read when it is asked for, once."""

    run: Run
    read: Callable[[], History]

    @cached_property
    def history(self) -> History:
        """The metrics over training; empty of a run whose code failed."""
        return {} if self.run.status == "failed" else self.read()

    @property
    def done(self) -> bool:
        """True where it was trained to the end."""
        return self.run.status == "done"

    @property
    def taus(self) -> Temperatures:
        return temperatures(self.run.config["estimator"])

    def has(self, name: str) -> bool:
        """True where it has values of a metric, or of one of several numbers, such as `perplexity[2]`."""
        series = self.history.get(name.partition("[")[0])
        if name in self.history:
            return len(self.history[name].values) > 0
        return series is not None and len(series.values) > 0 and name in dict(series.components(name.partition("[")[0]))

    def is_number(self, name: str) -> bool:
        """True where the metric is one number per evaluation, or counts as one."""
        return self.has(name) and self.values(name).ndim == 1

    @property
    def curves(self) -> list[str]:
        """The metrics that are one number per evaluation, or count as one."""
        return [name for name in self.history if self.values(name).ndim == 1]

    def values(self, name: str) -> Array:
        """The metric over training; of several numbers per evaluation the mean, where its card says so."""
        if name in self.history:
            values = np.asarray(self.history[name].values, dtype=np.float64)
        else:
            whole = name.partition("[")[0]
            values = np.asarray(dict(self.history[whole].components(whole))[name], dtype=np.float64)
        return values.mean(-1) if metric(name).averaged and values.ndim > 1 else values

    def last(self, name: str) -> float:
        return float(self.values(name)[-1])

    def best(self, name: str) -> float:
        """The lowest loss over training, or the highest accuracy; of what has no good end, the last."""
        direction = metric(name).direction
        return best_of(self.values(name), direction) if direction else self.last(name)

    def counted(self, name: str, at: str | None = None) -> float:
        """The value that counts: the "best" or the "last"; by the metric's card where neither is asked for."""
        return self.best(name) if (at or metric(name).at) == BEST else self.last(name)

    def progress(self, name: str) -> Array:
        """The steps of the metric, in epochs where the task counts in them."""
        steps = self.history[name].steps.astype(np.float64)
        epochs = self.run.config.get("epochs")
        last = max(int(series.steps[-1]) for series in self.history.values() if len(series.steps))
        return steps if epochs is None else steps * (epochs / last)


def best_of(values: Array, direction: int) -> float:
    """The highest value (direction 1) or the lowest (-1), those that are NaN left out; NaN where all are."""
    numbers = values[~np.isnan(values)]
    return float(direction * (direction * numbers).max()) if numbers.size else math.nan


def setting_key(config: Mapping[str, Any]) -> str:
    """What the runs of one setting share: their config without the seed."""
    return json.dumps({key: value for key, value in config.items() if key != "seed"}, sort_keys=True)


def together(rows: Sequence[Row], name: str) -> tuple[Array, Array]:
    """(progress [T], values [runs, T, ..]) of runs that were evaluated at the same steps. A run that ended early keeps
    its last value, so that the last mean is the mean of the runs' last values."""
    longest = max(rows, key=lambda row: len(row.history[name].steps))
    progress, curves = longest.progress(name), [row.values(name) for row in rows]
    return progress, np.stack([np.concatenate([one, one[-1:].repeat(len(progress) - len(one), 0)]) for one in curves])


def uneven(rows: Sequence[Row], name: str) -> bool:
    """True where some of the runs ended earlier than others."""
    return len({len(row.history[name].steps) for row in rows}) > 1


def spread(values: Array) -> Array:
    """The standard deviation over runs (n - 1); 0 for one run, and for equal ones, whose mean may be rounded."""
    if len(values) == 1:
        return np.zeros_like(values[0])
    equal = np.isfinite(values[0]) & (values == values[0]).all(0)
    with np.errstate(invalid="ignore"):  # of infinities it is NaN
        return np.where(equal, 0, values.std(0, ddof=1))
