"""What a plan is: a function from what is known to what is wanted. Grids, the paper's O(n) protocol (sweep one
temperature, keep the best, sweep the other), and what follows from the settings that were chosen."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

from dst_lab.estimators import Choice
from dst_lab.runs import FRESH, Config

Lookup: TypeAlias = Callable[[Config], float | None]
"""A run's score (its lowest validation loss over training; infinite where it diverged), None if not known. A run whose
code failed is not known: it is tried again."""
Axis: TypeAlias = tuple[str, Sequence[Any]]


class Plan(ABC):
    """Which runs come next. A plan keeps no state: asked again with the same knowledge, it answers the same, so a plan
    that was killed, or trained on several machines, goes on from the store alone."""

    @abstractmethod
    def wanted(self, lookup: Lookup) -> list[Config]:
        """Every run wanted so far, known or not. When all are known and asking again adds none, the plan is done."""

    def chosen(self, lookup: Lookup) -> list[Config]:
        """The settings the plan was made to find (their seed means nothing); empty until it is done."""
        return []

    def notes(self, lookup: Lookup) -> list[str]:
        """What a reader should know of how it went: what was chosen, and optima on the edge of a sweep."""
        return []

    def of(self, task: str) -> "Plan | None":
        """Its part of one task, or None where it has none. A plan of several tasks says itself how it is parted."""
        return self if any(config.task == task for config in self.wanted(lambda _: None)) else None


@dataclass(frozen=True)
class Grid(Plan):
    """Every combination of the axes' values, for every seed: the paper's O(n^2) search, and any other product.

    Axes name temperatures of the base's estimator (tau_f, tau_b, tau) or fields of its config (lr, ..).
    """

    base: Config
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]

    def wanted(self, lookup: Lookup) -> list[Config]:
        return seeded(settings(self.base, self.axes), self.seeds)

    def chosen(self, lookup: Lookup) -> list[Config]:
        winner = best(settings(self.base, self.axes), self.seeds, lookup)
        return [] if winner is None else [winner]

    def notes(self, lookup: Lookup) -> list[str]:
        if not self.chosen(lookup):
            return []
        (winner,) = self.chosen(lookup)
        if score(winner, self.seeds, lookup) == math.inf:
            return [all_diverged(winner)]
        values_of = ", ".join(f"{name}={value_of(winner, name)}" for name, _ in self.axes)
        remarks = [f"best of {describe(self.base)}: {values_of}, {score(winner, self.seeds, lookup):.6g}"]
        for name, values in self.axes:
            if edge(values, value_of(winner, name)) is not None:
                remarks.append(f"  {name}={value_of(winner, name)} lies on the edge of the grid")
        return remarks


class Measured(Grid):
    """A grid of runs that are measured, not compared: it chooses none."""

    def chosen(self, lookup: Lookup) -> list[Config]:
        return []

    def notes(self, lookup: Lookup) -> list[str]:
        return []


@dataclass(frozen=True)
class Several(Plan):
    """Several plans as one; a run that two of them want is one run."""

    plans: tuple[Plan, ...]

    def wanted(self, lookup: Lookup) -> list[Config]:
        return list(dict.fromkeys(config for plan in self.plans for config in plan.wanted(lookup)))

    def chosen(self, lookup: Lookup) -> list[Config]:
        parts = [plan.chosen(lookup) for plan in self.plans]
        return [config for configs in parts for config in configs] if all(parts) else []

    def notes(self, lookup: Lookup) -> list[str]:
        return [note for plan in self.plans for note in plan.notes(lookup)]

    def of(self, task: str) -> Plan | None:
        parts = tuple(part for plan in self.plans if (part := plan.of(task)))
        return Several(parts) if parts else None


def settings(base: Config, axes: Iterable[Axis]) -> list[Config]:
    """The base with every combination of values, the last axis changing fastest."""
    axes = list(axes)
    names = [name for name, _ in axes]
    return [with_values(base, dict(zip(names, one, strict=True))) for one in product(*(values for _, values in axes))]


def seeded(configs: Iterable[Config], seeds: Sequence[int]) -> list[Config]:
    return [replace(config, seed=seed) for config in configs for seed in seeds]


def with_value(config: Config, name: str, value: Any) -> Config:
    """The config with a temperature or another field changed."""
    return with_values(config, {name: value})


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with several fields changed at once, and checked when all are changed: some fit only together."""
    numbers = config.estimator.to_dict()
    estimator = numbers.pop("name")
    known = [*numbers, *config.values()]
    for name in values:
        if name not in known:
            raise ValueError(
                f"{config.task} with {config.estimator.name} has no {name}: choose among {', '.join(known)}"
            )
    tempered = {name: value for name, value in values.items() if name in numbers}
    choice = Choice.make(estimator, **{**numbers, **tempered}) if tempered else config.estimator
    return config.with_values(choice, {name: value for name, value in values.items() if name not in numbers})


def value_of(config: Config, name: str) -> Any:
    taus: Mapping[str, Any] = config.estimator.to_dict()
    return taus[name] if name in taus else config.values()[name]


def score(config: Config, seeds: Sequence[int], lookup: Lookup) -> float | None:
    """The mean over seeds of each run's score; None until all are known."""
    scores = [lookup(run) for run in seeded([config], seeds)]
    known = [value for value in scores if value is not None]
    return sum(known) / len(known) if len(known) == len(scores) else None


def best(configs: Sequence[Config], seeds: Sequence[int], lookup: Lookup) -> Config | None:
    """The setting with the lowest mean score; of equals the first in the sweep's order. None until all are known.

    A setting with a diverged run scores infinity: it is not chosen unless all do.
    """
    scored = [(score(config, seeds, lookup), i) for i, config in enumerate(configs)]
    if any(value is None for value, _ in scored):
        return None
    return configs[min((value, i) for value, i in scored if value is not None)[1]]


def all_diverged(config: Config) -> str:
    """The sentence about a search whose best setting has no finite score."""
    return f"none is best of {describe(config)}: every setting has a run that diverged"


def edge(values: Sequence[Any], value: Any) -> str | None:
    """ "low" or "high" where the value is a sweep's first or last; 0 is no low edge, since nothing lies below."""
    numbers = sorted({v for v in values if is_number(v)})
    if len(numbers) < 2 or not is_number(value):
        return None
    if math.isclose(value, numbers[-1]):
        return "high"
    return "low" if math.isclose(value, numbers[0]) and value != 0 else None


def is_number(value: Any) -> bool:
    """Yes and no have no order."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe(config: Config) -> str:
    return f"{config.task} {config.estimator.name}"


FRESH_SEEDS = tuple(range(FRESH, FRESH + 10))


@dataclass(frozen=True)
class Following(Plan):
    """What follows from the settings that earlier plans chose; nothing until those plans are done, and nothing from the
    relaxations, which are references that no claim judges."""

    before: tuple[tuple[str, Plan], ...]
    """(name, plan)."""
    seeds: tuple[int, ...]

    def wanted(self, lookup: Lookup) -> list[Config]:
        settled = [config for _, plan in self.before for config in plan.chosen(lookup)]
        judged = [config for config in settled if config.estimator.kind.discrete]
        return seeded(list(dict.fromkeys(new for config in judged for new in self.variants(config))), self.seeds)

    def variants(self, config: Config) -> list[Config]:
        """What to train for one chosen setting."""
        return [config]

    def notes(self, lookup: Lookup) -> list[str]:
        undone = dict.fromkeys(name for name, plan in self.before if not plan.chosen(lookup))
        return [f"{name} is not done: sweep it first" for name in undone]

    def of(self, task: str) -> Plan | None:
        before = tuple((name, part) for name, plan in self.before if (part := plan.of(task)))
        return replace(self, before=before) if before else None


class Confirm(Following):
    """The chosen settings again, with seeds that no search has seen."""


BEYOND = 2
"""How many values a sweep is extended by, once, where its best lies on the edge."""


@dataclass(frozen=True)
class Sequential(Plan):
    """One sweep after the other: the first with everything else as in `base`; its best value is fixed, then the next.

    The best setting has the lowest mean over seeds of each run's lowest validation loss; of equals, the first in the
    sweep's order. From the second sweep on a value that stood there before, and is none of the sweep, stays where all
    of it is worse; where the first begins is not trained. Axes in `always` (such as learning rates) are tried in full
    with every value of every sweep. A sweep of a temperature whose best value lies on its edge is extended once in that
    direction.
    """

    base: Config
    sweeps: tuple[Axis, ...]
    seeds: tuple[int, ...]
    always: tuple[Axis, ...] = ()

    def wanted(self, lookup: Lookup) -> list[Config]:
        return seeded(self._settings(lookup)[0], self.seeds)

    def chosen(self, lookup: Lookup) -> list[Config]:
        winner = self._settings(lookup)[1]
        return [] if winner is None else [winner]

    def notes(self, lookup: Lookup) -> list[str]:
        _, winner, remarks = self._settings(lookup)
        if winner is not None and score(winner, self.seeds, lookup) == math.inf:
            return [all_diverged(winner)]
        if winner is not None:
            names = [name for name, _ in (*self.sweeps, *self.always)]
            values = ", ".join(f"{name}={value_of(winner, name)}" for name in names)
            remarks = [*remarks, f"chosen for {describe(winner)}: {values}, {score(winner, self.seeds, lookup):.6g}"]
            for name, tried in self.always:
                if edge(tried, value_of(winner, name)):
                    remarks.append(f"  {name}={value_of(winner, name)} lies on the edge of those that were tried")
        return remarks

    def _settings(self, lookup: Lookup) -> tuple[list[Config], Config | None, list[str]]:
        remarks: list[str] = []
        tried: list[Config] = []
        held, top = self.base, None
        for axis in self.sweeps:
            before = top
            swept, top = self._sweep(held, axis, lookup, remarks)
            tried += swept
            if top is None:
                break
            if before is not None and best([top, before], self.seeds, lookup) is before:
                top = before
                remarks.append(f"{axis[0]} of {describe(top)}: {value_of(top, axis[0])}, from before, beats its sweep")
            held = with_value(held, axis[0], value_of(top, axis[0]))
        return list(dict.fromkeys(tried)), top, remarks

    def _sweep(
        self, base: Config, axis: Axis, lookup: Lookup, remarks: list[str]
    ) -> tuple[list[Config], Config | None]:
        """The settings of one sweep, extended where needed, and its best once all are known."""
        name, values = axis
        tried = settings(base, [axis, *self.always])
        top = best(tried, self.seeds, lookup)
        side = edge(values, value_of(top, name)) if top is not None else None
        if side is None:
            return tried, top
        if name not in base.estimator.kind.temperatures():
            remarks.append(f"{name} of {describe(base)}: best on the {side} edge of the sweep")
            return tried, top
        more = beyond([float(value) for value in values if isinstance(value, int | float)], side)
        remarks.append(f"{name} of {describe(base)}: best on the {side} edge of the sweep, extended by {more}")
        tried = [*tried, *settings(base, [(name, more), *self.always])]
        top = best(tried, self.seeds, lookup)
        if top is not None and value_of(top, name) == more[-1]:
            remarks.append(f"  {name}={more[-1]} lies at the end of that extension too: better values may lie beyond")
        return tried, top


def beyond(values: list[float], side: str) -> list[float]:
    """The next values past an edge: the last step repeated upwards, halves downwards (a temperature stays above 0)."""
    ordered = sorted(set(values))
    if side == "low":
        return [ordered[0] / 2**k for k in range(1, BEYOND + 1)]
    step = ordered[-1] - ordered[-2]
    return [round(ordered[-1] + k * step, 10) for k in range(1, BEYOND + 1)]
