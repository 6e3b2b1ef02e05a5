"""What the figures draw: the runs of a store, read once, found by their configs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dst_lab.claims import Rows as ClaimRows
from dst_lab.configs import Config
from dst_lab.plans.plan import Lookup
from dst_lab.plans.pursue import scores
from dst_lab.store import Run, Series, Store, Temperatures, direction_of, run_id, temperatures
from dst_lab.studies.paper.claims.mechanisms import collapsed, mark_of_convergence
from dst_lab.studies.paper.recipes import FRESH, RECIPES, chosen

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Row:
    """A run with its history."""

    run: Run
    history: Mapping[str, Series]

    @property
    def taus(self) -> Temperatures:
        return temperatures(self.run.config["estimator"])

    def has(self, metric: str) -> bool:
        return metric in self.history and len(self.history[metric].values) > 0

    def values(self, metric: str) -> Array:
        """Over training; the mean over latents where there are several (`perplexity`)."""
        values = np.asarray(self.history[metric].values, dtype=np.float64)
        return values.mean(-1) if metric == "perplexity" else values

    def last(self, metric: str) -> float:
        return float(self.values(metric)[-1])

    def best(self, metric: str) -> float:
        """The lowest loss over training, or the highest accuracy; of what has no good end, the last."""
        values, direction = self.values(metric), direction_of(metric)
        return float(direction * np.nanmax(direction * values)) if direction else float(values[-1])

    @property
    def collapsed(self) -> bool:
        return collapsed(self.history)

    def progress(self, metric: str) -> Array:
        """The steps of the metric, in epochs where the task counts in them."""
        steps = self.history[metric].steps.astype(np.float64)
        epochs = self.run.config.get("epochs")
        last = max(int(series.steps[-1]) for series in self.history.values() if len(series.steps))
        return steps if epochs is None else steps * (epochs / last)


@dataclass(frozen=True)
class Setting:
    """The runs of one setting that trained to the end, and which seeds they are: "confirmation" or "search" seeds."""

    config: Config
    rows: list[Row]
    seeds: str
    diverged: int = 0
    """How many runs of these seeds are not among the rows."""

    @property
    def n(self) -> int:
        return len(self.rows)


class Rows:
    """A store at one scale. What was chosen is chosen by the searches' own rule."""

    def __init__(self, store: Store, scale: str) -> None:
        self.store, self.scale = store, scale
        runs = store.runs()
        self.runs = {run.id: Row(run, store.history(run.id) if run.status != "failed" else {}) for run in runs}
        self.lookup: Lookup = scores(store)
        self.chosen = chosen(self.lookup, scale)
        self._by_setting: dict[str, list[Row]] = {}
        for row in self.runs.values():
            self._by_setting.setdefault(setting_key(row.run.config), []).append(row)

    @cached_property
    def converged_below(self) -> float:
        """The last validation loss below which a run of the autoencoder has converged, by the claims' own rule; NaN
        where there is none of its searches."""
        return mark_of_convergence(ClaimRows.of(self.store, self.scale))[0]

    def wanted(self, recipe: str) -> list[Config]:
        return RECIPES[recipe](self.scale).wanted(self.lookup) if recipe in RECIPES else []

    def of(self, configs: Iterable[Config], status: str = "done") -> list[Row]:
        """Those of the configs that are in the store with this status: trained to the end, unless asked otherwise."""
        found = (self.runs.get(run_id(config.to_dict())) for config in configs)
        return [row for row in found if row is not None and row.run.status == status]

    def recipe(self, name: str, task: str, *metrics: str) -> list[Row]:
        """The recipe's runs of a task that have these metrics."""
        rows = self.of(config for config in self.wanted(name) if config.task == task)
        return [row for row in rows if all(map(row.has, metrics))]

    def diverged(self, name: str, task: str) -> list[Row]:
        """The recipe's runs of a task that diverged."""
        return self.of((config for config in self.wanted(name) if config.task == task), "diverged")

    def missing(self, recipe: str, task: str) -> list[str]:
        """In words, what the recipe wants of a task and the store lacks."""
        if recipe not in RECIPES:
            return [f"there is no recipe {recipe}"]
        configs = [config for config in self.wanted(recipe) if config.task == task]
        lacking = sum(self.lookup(config) is None for config in configs)
        if configs and not lacking:
            return []
        runs = f"{lacking} of {len(configs)} runs" if configs else "the runs"
        return [f"{runs} of {recipe}"]

    def setting(self, task: str, role: str) -> Setting | None:
        """The setting chosen for a role, with its confirmation runs or, before there are any, the search's."""
        config = self.chosen.get((task, role))
        if config is None:
            return None
        rows = self._by_setting.get(setting_key(config.to_dict()), [])
        rows = [row for row in rows if row.run.status in ("done", "diverged")]
        fresh = [row for row in rows if row.run.seed >= FRESH]
        done = [row for row in fresh or rows if row.run.status == "done"]
        return Setting(config, done, "confirmation" if fresh else "search", len(fresh or rows) - len(done))


def setting_key(config: Mapping[str, Any]) -> str:
    """What the runs of one setting share: their config without the seed."""
    return json.dumps({key: value for key, value in config.items() if key != "seed"}, sort_keys=True)


def together(rows: list[Row], metric: str) -> tuple[Array, Array]:
    """(progress [T], values [runs, T, ..]) of runs that were evaluated alike; else up to the shortest."""
    length = min(len(row.history[metric].steps) for row in rows)
    return rows[0].progress(metric)[:length], np.stack([row.values(metric)[:length] for row in rows])


def spread(values: Array) -> Array:
    """The standard deviation over runs (n - 1); 0 for one run."""
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
