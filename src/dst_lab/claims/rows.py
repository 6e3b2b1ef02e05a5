"""What the claims read: runs by their config, and the settings that the searches chose."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress
from statistics import fmean

from dst_lab.claims.measures import History, Measure
from dst_lab.claims.paired import paired
from dst_lab.claims.verdict import Comparison
from dst_lab.configs import Config
from dst_lab.plans import Adaptive, Grid, Lookup, Sequential
from dst_lab.plans.plan import seeded
from dst_lab.plans.pursue import scores
from dst_lab.store import Store, run_id
from dst_lab.studies.paper.recipes import FRESH, SEARCHES, chosen, parts

SEEDS = 10
"""Pairs behind a verdict; fewer, and the claim is not tested."""
NAMES = {
    "decoupled": "Decoupled ST",
    "diagonal": "Softmax STE on the diagonal",
    "identity_ste": "Identity STE",
    "softmax_ste": "Softmax STE",
    "gumbel_ste": "ST Gumbel-Softmax",
}
BASELINES = ("identity_ste", "softmax_ste", "gumbel_ste")


@dataclass(frozen=True)
class Row:
    """A run that has ended: done, or diverged."""

    id: str
    done: bool
    history: Callable[[], History]

    def value(self, measure: Measure) -> float:
        """The measure of the run, or what it counts for where it diverged."""
        return measure.read(self.history()) if self.done else measure.diverged


@dataclass(frozen=True)
class Rows:
    """The runs of one scale. Tests make them without a store."""

    scale: str
    find: Callable[[Config], Row | None]
    """None where the run is not there, or failed."""
    lookup: Lookup

    @classmethod
    def of(cls, store: Store, scale: str) -> "Rows":
        status = {run.id: run.status for run in store.runs()}
        history = lru_cache(maxsize=None)(store.history)

        def find(config: Config) -> Row | None:
            run = run_id(config.to_dict())
            if status.get(run) not in ("done", "diverged"):
                return None
            return Row(run, status[run] == "done", lambda: history(run))

        return cls(scale, find, scores(store))

    @cached_property
    def chosen(self) -> dict[tuple[str, str], Config]:
        """(task, role) -> setting, where that search is done."""
        return chosen(self.lookup, self.scale)

    @cached_property
    def searches(self) -> dict[tuple[str, str], tuple[str, Grid | Sequential | Adaptive]]:
        """(task, role) -> the recipe's name and the part of its plan that searches for it."""
        found = {}
        for name, part in parts(self.scale, SEARCHES):
            if isinstance(part, Grid | Sequential | Adaptive):
                role = "diagonal" if name == "diagonal" else part.base.estimator.name
                found[part.base.task, role] = name, part
        return found

    @cached_property
    def arms(self) -> dict[tuple[str, str], "Arm"]:
        """(task, role) -> its confirmation runs, or what lacks of them."""
        return {(task, role): _arm(self, task, role) for task, role in self.searches if role in NAMES}

    def command(self, recipe: str) -> str:
        return f"`dst sweep {recipe} --scale {self.scale}`"


@dataclass(frozen=True)
class Arm:
    """The chosen setting of one role on one task, with its fresh seeds."""

    name: str
    config: Config | None
    rows: tuple[Row, ...]
    """In the order of the seeds; empty where one lacks."""
    missing: tuple[str, ...]


def _arm(rows: Rows, task: str, role: str) -> Arm:
    config, name = rows.chosen.get((task, role)), NAMES[role]
    if config is None:
        search = rows.command(rows.searches[task, role][0])
        return Arm(name, None, (), (f"the search for {name} on {task}: {search}",))
    found = [rows.find(run) for run in seeded([config], range(FRESH, FRESH + SEEDS))]
    there = tuple(row for row in found if row is not None)
    if len(there) < SEEDS:
        lack = f"{SEEDS - len(there)} of {SEEDS} confirmation runs of {name} on {task}: {rows.command('confirm')}"
        return Arm(name, config, (), (lack,))
    return Arm(name, config, there, ())


def compare(
    ours: Arm, theirs: Arm, measure: Measure, *, primary: bool = False, judged: bool = False
) -> Comparison | None:
    """Two arms in one measure, paired by seed; None where a run is not there or did not record it.

    For the test, a value that is not finite, such as that of a run that diverged, becomes the worst finite one of both
    arms: leaving it out would reward an arm for it. What is shown leaves it out: means are of the runs that finished,
    and where one did not there is neither interval nor effect.
    """
    if not (ours.rows and theirs.rows):
        return None
    try:
        values = [[row.value(measure) for row in side.rows] for side in (ours, theirs)]
    except KeyError:
        return None
    finite = [value for side in values for value in side if math.isfinite(value)]
    worst = min(finite, key=lambda value: measure.direction * value, default=0.0)
    filled = [[value if math.isfinite(value) else worst for value in side] for side in values]
    found = paired(filled[0], filled[1], measure.direction, by_sign=measure.by_sign)
    ended = [
        [row.done and math.isfinite(value) for row, value in zip(side.rows, of_side, strict=True)]
        for side, of_side in zip((ours, theirs), values, strict=True)
    ]
    diverged = ended[0].count(False), ended[1].count(False)
    late = [sum(value == measure.never for value in compress(*side)) for side in zip(values, ended, strict=True)]
    if any(diverged) or measure.yes_or_no:
        found = replace(found, low=math.nan, high=math.nan, effect=math.nan)
    if any(diverged) and not measure.yes_or_no:
        a, b = (_mean(compress(*side)) for side in zip(values, ended, strict=True))
        found = replace(found, ours=a, theirs=b, difference=a - b)
    return Comparison(
        name=f"against {theirs.name}",
        metric=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        primary=primary,
        judged=judged,
        diverged=diverged,
        late=(late[0], late[1]),
        **vars(found),
    )


def _mean(values: Iterable[float]) -> float:
    finished = list(values)
    return fmean(finished) if finished else math.nan
