"""One temperature over its values: the runs behind C3."""

import math
from dataclasses import dataclass, replace

from dst_lab.claims import SEEDS, Measure
from dst_lab.claims.measures import first, last, mean
from dst_lab.plans import Grid
from dst_lab.plans.plan import seeded, settings, value_of
from dst_lab.records import Row, Rows

from studies.paper.claims.mechanisms import collapsed

PERPLEXITY = replace(last("perplexity", "codes"), name="codes in use (perplexity)")
SNR = replace(mean("snr"), name="gradient signal-to-noise ratio")
NORM = replace(mean("gradient_norm"), name="gradient norm")
FIRST_NORM = replace(first("gradient_norm"), name="gradient norm at the first evaluation")
ACTIVE = Measure("active neurons", "share", 1, lambda h: 1 - float(h["inactive"].values[-1]))
LEAST = 3
"""Runs of a seed behind a trend, a slope or a range; fewer, and the claim is not tested."""
Table = list[tuple[list[float], list[float]]]
"""Temperatures and values, for each seed."""


@dataclass(frozen=True)
class Sweep:
    """One temperature over its values on one task: a row of runs for each seed."""

    name: str
    task: str
    values: tuple[float, ...]
    tau_f: tuple[float, ...]
    """The tau_f at each of the values."""
    rows: tuple[tuple[Row, ...], ...]
    missing: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"over {self.name} on {self.task}"

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(row.run.id for of_seed in self.rows for row in of_seed)

    def read(self, measure: Measure) -> Table:
        """The runs that did not diverge; KeyError where one did not record the measure."""
        table = []
        for of_seed in self.rows:
            points = [
                (tau, _value(row, measure, tau_f))
                for tau, tau_f, row in zip(self.values, self.tau_f, of_seed, strict=True)
                if row.done
            ]
            table.append(([tau for tau, _ in points], [value for _, value in points]))
        return table

    @property
    def diverged(self) -> int:
        return sum(not row.done for of_seed in self.rows for row in of_seed)

    @property
    def collapsed(self) -> int:
        return sum(collapsed(row.history) for of_seed in self.rows for row in of_seed if row.done)

    @property
    def partly(self) -> int:
        """Runs with a signal-to-noise ratio at some of its measurements only."""
        known = [
            [not math.isnan(value) for value in row.history["snr"].values]
            for of_seed in self.rows
            for row in of_seed
            if row.done
        ]
        return sum(any(of_run) and not all(of_run) for of_run in known)


def _value(row: Row, measure: Measure, tau_f: float) -> float:
    """At tau_f = 0 nothing is drawn, so no ratio is recorded (NaN): it is infinite. Elsewhere NaN is not known."""
    value = measure.of(row)
    return math.inf if measure is SNR and tau_f == 0 and math.isnan(value) else value


def sweep_of(rows: Rows, tau: str, task: str) -> Sweep:
    """The runs of a temperature's recipe on one task, and what lacks of them."""
    recipe = tau.replace("_", "-") + "-effects"
    grids = [part for _, part in rows.recipes.parts(rows.scale, [recipe]) if isinstance(part, Grid)]
    (grid,) = (grid for grid in grids if grid.base.task == task)
    ((name, values),) = grid.axes
    rows_or_none = [
        [rows.find(config) for config in settings(base, grid.axes)] for base in seeded([grid.base], grid.seeds[:SEEDS])
    ]
    existing = tuple(tuple(row for row in of_seed if row is not None) for of_seed in rows_or_none)
    wanted, have = SEEDS * len(values), sum(map(len, existing))
    missing = []
    if len(grid.seeds) < SEEDS:
        missing.append(f"{recipe} has {len(grid.seeds)} seeds at scale {rows.scale}, and the rule asks for {SEEDS}")
    elif have < wanted:
        missing.append(f"{wanted - have} of {wanted} runs over {name} on {task}: {rows.command(recipe)}")
    elif any(sum(row.done for row in of_seed) < LEAST for of_seed in existing):
        missing.append(f"a trend over {name} on {task}: of some seed, fewer than {LEAST} runs did not diverge")
    tau_f = tuple(float(value_of(config, "tau_f")) for config in settings(grid.base, grid.axes))
    return Sweep(name, task, tuple(map(float, values)), tau_f, existing, tuple(missing))
