"""The paper's O(n) protocol: sweep one temperature, keep the best, sweep the other."""

import math
from dataclasses import dataclass

from dst_lab.plans.plan import (
    Axis,
    Lookup,
    Plan,
    all_diverged,
    best,
    describe,
    edge,
    score,
    seeded,
    settings,
    value_of,
    with_value,
)
from dst_lab.runs import Config

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
