"""The two sides of a comparison: chosen settings, each with its fresh seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import fmean

from dst_lab.cards import LOSS_UNIT, estimator, task_card
from dst_lab.claims.measures import Measure
from dst_lab.claims.paired import paired
from dst_lab.claims.verdict import Comparison, Verdict, decide
from dst_lab.plans import FRESH
from dst_lab.plans.plan import seeded
from dst_lab.records import Row, Rows
from dst_lab.runs import Config

SEEDS = 10
"""Pairs behind a verdict; fewer, and the claim is not tested."""


@dataclass(frozen=True)
class Arm:
    """The chosen setting of one role on one task, with its fresh seeds."""

    name: str
    config: Config | None
    rows: tuple[Row, ...]
    """The runs in the order of their seeds; empty where one is missing."""
    missing: tuple[str, ...]


def arm(rows: Rows, task: str, role: str) -> Arm:
    """The confirmation runs of a role on a task, or what lacks of them; worked out once."""
    key = Arm, task, role
    if key not in rows.memory:
        rows.memory[key] = _arm(rows, task, role)
    known: Arm = rows.memory[key]
    return known


def _arm(rows: Rows, task: str, role: str) -> Arm:
    recipe, search = rows.searches[task, role]
    config, name = rows.chosen.get((task, role)), role_name(rows, role, search.base)
    if config is None:
        return Arm(name, None, (), (f"the search for {name} on {task}: {rows.command(recipe)}",))
    return arm_of(rows, name, config, range(FRESH, FRESH + SEEDS), rows.recipes.confirm)


def arm_of(rows: Rows, name: str, config: Config, seeds: Sequence[int], recipe: str) -> Arm:
    """A setting with these seeds, or how many of them the store lacks, and which recipe trains them."""
    rows_or_none = [rows.find(run) for run in seeded([config], seeds)]
    existing = tuple(row for row in rows_or_none if row is not None)
    if len(existing) == len(seeds):
        return Arm(name, config, existing, ())
    missing = f"{len(seeds) - len(existing)} of {len(seeds)} runs of {name} on {config.task}: {rows.command(recipe)}"
    return Arm(name, config, (), (missing,))


def role_name(rows: Rows, role: str, config: Config) -> str:
    """A role in words: its estimator, with the name of a search of its own."""
    label = estimator(config.estimator.name).label
    return f"{label} on {rows.recipes.roles[role]}" if role in rows.recipes.roles else label


def contest(
    verdict: Verdict,
    pairs: Sequence[tuple[Arm, Arm]],
    judged: Sequence[Measure],
    shown: Sequence[Measure] = (),
    others: Sequence[tuple[Arm, Arm]] = (),
) -> Verdict:
    """A verdict decided by pairs of arms in the `judged` measures: supported if ours is better in each, contradicted if
    it is worse in one. The measures `shown`, and the `others` in all measures, do not count.
    """
    missing = [lack for one in _distinct(pairs) for lack in one.missing]
    comparisons: list[Comparison] = []
    for ours, theirs in pairs:
        for measure in judged:
            comparison = compare(ours, theirs, measure, judged=True)
            comparisons += [comparison] if comparison else []
            if comparison is None and not (ours.missing or theirs.missing):
                missing.append(f"{measure.name}, which the runs on {verdict.task} did not record")
    rest = [(pair, measure) for pair in pairs for measure in shown]
    rest += [(pair, measure) for pair in others for measure in (*judged, *shown)]
    comparisons += [comparison for pair, measure in rest if (comparison := compare(*pair, measure))]
    return replace(
        verdict,
        verdict=decide(comparisons, missing),
        comparisons=tuple(comparisons),
        missing=tuple(dict.fromkeys(missing)),
        runs=tuple(row.run.id for one in _distinct([*pairs, *others]) for row in one.rows),
    )


def _distinct(pairs: Iterable[tuple[Arm, Arm]]) -> list[Arm]:
    return list({one.name: one for pair in pairs for one in pair}.values())


def compare(ours: Arm, theirs: Arm | float, measure: Measure, *, judged: bool = False) -> Comparison | None:
    """Two arms in one measure, paired by seed, or an arm and a number; None where a run is not there or did not record
    the measure.

    For the test, a value that is not finite, such as that of a run that diverged, becomes the worst finite one of both
    arms: leaving it out would reward an arm for it. What is shown leaves it out: means are of the other runs, and
    where one is left out there is neither interval nor effect.
    """
    other = theirs.rows if isinstance(theirs, Arm) else ours.rows
    if not (ours.rows and other):
        return None
    try:
        values = [[measure.of(row) for row in side] for side in (ours.rows, other)]
    except KeyError:
        return None
    done = [[row.done for row in side] for side in (ours.rows, other)]
    name = theirs.name if isinstance(theirs, Arm) else f"{theirs:g}"
    if not isinstance(theirs, Arm):
        values[1], done[1] = [theirs] * len(other), [True] * len(other)
    finite = [value for side in values for value in side if math.isfinite(value)]
    worst = min(finite, key=lambda value: measure.direction * value, default=0.0)
    filled = [[value if math.isfinite(value) else worst for value in side] for side in values]
    result = paired(filled[0], filled[1], measure.direction)
    ended = [
        [trained and math.isfinite(value) for trained, value in zip(*side, strict=True)]
        for side in zip(done, values, strict=True)
    ]
    lost, diverged = ([side.count(False) for side in sides] for sides in (ended, done))
    late = [sum(value == measure.never for value in compress(*side)) for side in zip(values, ended, strict=True)]
    if any(lost) or measure.yes_or_no:
        result = replace(result, low=math.nan, high=math.nan, effect=math.nan)
    if any(lost) and not measure.yes_or_no:
        a, b = (_mean(compress(*side)) for side in zip(values, ended, strict=True))
        result = replace(result, ours=a, theirs=b, difference=a - b)
    return Comparison(
        name=f"against {name}",
        metric=measure.name,
        # The unit of a loss is the task's.
        unit=task_card(ours.rows[0].run.task).loss_unit if measure.unit == LOSS_UNIT else measure.unit,
        direction=measure.direction,
        judged=judged,
        arm=ours.name,
        diverged=(diverged[0], diverged[1]),
        unknown=(lost[0] - diverged[0], lost[1] - diverged[1]),
        late=(late[0], late[1]),
        **vars(result),
    )


def _mean(values: Iterable[float]) -> float:
    finished = list(values)
    return fmean(finished) if finished else math.nan
