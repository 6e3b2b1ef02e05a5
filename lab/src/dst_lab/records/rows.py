"""The runs of a store as one study sees them at one scale: found by their configs, by its recipes, by their roles."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from dst_lab.cards import Look, estimator
from dst_lab.records.row import Array, Row, setting_key
from dst_lab.records.summary import values
from dst_lab.runs import FRESH, Config
from dst_lab.store import Store, run_id

if TYPE_CHECKING:
    from dst_lab.plans import Lookup, Plan, Recipes
    from dst_lab.plans.recipes import Role, Search

ENDED = ("done", "diverged")


class Reader:
    """The runs of a store as it is now, or these alone."""

    def __init__(self, store: Store, rows: Mapping[str, Row] | None = None) -> None:
        self.store = store
        self.rows = rows if rows is not None else {r.id: Row(r, partial(store.history, r.id)) for r in store.runs()}

    def row(self, config: Config) -> Row | None:
        """The run of this config, however it ended; None where the store does not have it."""
        return self.rows.get(run_id(config.to_dict()))

    def find(self, config: Config) -> Row | None:
        """The run of this config if it is done or diverged; None otherwise."""
        row = self.row(config)
        return row if row is not None and row.run.status in ENDED else None

    def scores(self) -> "Lookup":
        """Each run's lowest validation loss over training; infinite where it diverged."""
        known: dict[str, float] = {}

        def lookup(config: Config) -> float | None:
            row = self.find(config)
            if row is None:
                return None
            if row.run.id not in known:
                lowest = float(row.history["validation_loss"].values.min()) if row.done else math.inf
                known[row.run.id] = lowest if math.isfinite(lowest) else math.inf
            return known[row.run.id]

        return lookup


def remaining(plan: "Plan", store: Store) -> tuple[list[Config], list[Config]]:
    """What the plan wants, given the store, and the store lacks; and all that it wants so far."""
    lookup = Reader(store).scores()
    wanted = plan.wanted(lookup)
    return [config for config in wanted if lookup(config) is None], wanted


@dataclass(frozen=True)
class Setting:
    """The runs of one setting that trained to the end, and which seeds they are: "search" seeds, "fresh" ones, those
    of a "confirmation", or "" where all are of one kind."""

    config: Mapping[str, Any]
    """What the runs share."""
    rows: list[Row]
    seeds: str
    diverged: int = 0
    """How many runs of these seeds are not among the rows."""

    @property
    def n(self) -> int:
        return len(self.rows)

    def values(self, metric: str, at: str | None = None) -> Array:
        """The metric of each run that has it, as `records.summary.values` counts it."""
        return values(self.rows, metric, at)

    @property
    def seeds_text(self) -> str:
        """Which seeds, in words: "search seeds", or "seeds"."""
        return f"{self.seeds} seeds".strip()

    @property
    def look(self) -> Look:
        """The card of its estimator."""
        return estimator(str(self.config["estimator"]["name"]))


@dataclass(frozen=True, eq=False)
class Rows:
    """The runs of a store as a study sees them at one scale. Settings are chosen by the searches' own rule. `find` and
    `lookup` may be replaced, as in tests, which need no store."""

    recipes: "Recipes"
    scale: str
    find: Callable[[Config], Row | None]
    """The run of a config if it is done or diverged; None otherwise."""
    lookup: "Lookup"
    reader: Reader | None = None

    @classmethod
    def of(cls, store: Store, recipes: "Recipes", scale: str) -> "Rows":
        reader = Reader(store)
        return cls(recipes, scale, reader.find, reader.scores(), reader)

    @property
    def store(self) -> Store:
        if self.reader is None:
            raise ValueError("these rows were made without a store")
        return self.reader.store

    @property
    def runs(self) -> Mapping[str, Row]:
        """Every run of the store, of whatever study and scale, in the order of recording."""
        return self.reader.rows if self.reader else {}

    @cached_property
    def chosen(self) -> "dict[Role, Config]":
        """The setting of each (task, role), where that search is done."""
        return self.recipes.chosen(self.lookup, self.scale)

    @cached_property
    def searches(self) -> "dict[Role, tuple[str, Search]]":
        """For each (task, role), the recipe's name and the part of its plan that searches for it."""
        return self.recipes.searched(self.scale)

    @cached_property
    def _wanted(self) -> dict[str, list[Config]]:
        return {}

    def wanted(self, recipe: str) -> list[Config]:
        """The runs that a recipe asks for, given the results so far; none for an unknown recipe."""
        if recipe not in self._wanted:
            plan = self.recipes.plans.get(recipe)
            self._wanted[recipe] = plan(self.scale).wanted(self.lookup) if plan else []
        return self._wanted[recipe]

    def of_status(self, configs: Iterable[Config], status: str = "done") -> list[Row]:
        """The runs of these configs that have this status: trained to the end, unless asked otherwise."""
        rows = (self.reader.row(config) if self.reader else self.find(config) for config in configs)
        return [row for row in rows if row is not None and row.run.status == status]

    def recipe(self, name: str, task: str, *metrics: str) -> list[Row]:
        """The recipe's runs of a task that have these metrics."""
        rows = self.of_status(config for config in self.wanted(name) if config.task == task)
        return [row for row in rows if all(map(row.has, metrics))]

    def diverged(self, name: str, task: str) -> list[Row]:
        """The recipe's runs of a task that diverged."""
        return self.of_status((config for config in self.wanted(name) if config.task == task), "diverged")

    def missing(self, recipe: str, task: str) -> list[str]:
        """What the recipe wants of a task and the store lacks, in words."""
        if recipe not in self.recipes.plans:
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
        values = config.to_dict()
        rows = [row for row in self._by_setting.get(setting_key(values), []) if row.run.status in ENDED]
        fresh = [row for row in rows if row.run.seed >= FRESH]
        done = [row for row in fresh or rows if row.done]
        return Setting(values, done, "confirmation" if fresh else "search", len(fresh or rows) - len(done))

    def settings(self, task: str, roles: Iterable[str]) -> dict[str, Setting]:
        """The chosen settings of these roles that have runs trained to the end."""
        return {role: setting for role in roles if (setting := self.setting(task, role)) and setting.n}

    def command(self, recipe: str) -> str:
        """What trains it."""
        return f"`{self.recipes.command(recipe, self.scale)}`"

    @cached_property
    def memory(self) -> dict[Hashable, Any]:
        """A cache for what is computed from these rows."""
        return {}

    @cached_property
    def _by_setting(self) -> dict[str, list[Row]]:
        by_setting: dict[str, list[Row]] = {}
        for row in self.runs.values():
            by_setting.setdefault(setting_key(row.run.config), []).append(row)
        return by_setting
