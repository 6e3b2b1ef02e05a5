"""C2: Decoupled ST against the three other estimators, each tuned: how good, and how soon."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from dst_lab.cards import estimator, metric
from dst_lab.claims import Measure, Verdict, arm, compare, decide
from dst_lab.claims.measures import after_the_end, last, reach
from dst_lab.claims.verdict import NOT_TESTED
from dst_lab.records import Rows

from studies.paper.claims.tasks import BASELINES, JUDGED, OURS, RULES, TaskRule, on_test

ALL = (
    "Supported only if all three are beaten, each at that level; contradicted if one of them beats Decoupled ST; "
    "otherwise not supported."
)

NO_MARK = "a mark to reach: all runs of all baselines diverged"


def judge_baselines(rows: Rows, rules: Sequence[TaskRule] = RULES) -> list[Verdict]:
    """Two verdicts per task: how good, then how soon."""
    return [verdict for rule in rules for verdict in (_quality(rows, rule), _speed(rows, rule))]


def contest(
    rows: Rows,
    verdict: Verdict,
    judged: Measure,
    beside: Sequence[Measure] = (),
    roles: Sequence[str] = BASELINES,
    primary: bool = False,
) -> Verdict:
    """Decoupled ST against every baseline; those in `roles` enter the verdict with the measure `judged`."""
    ours = arm(rows, verdict.task, OURS)
    comparisons, missing, runs = [], [*ours.missing], [row.run.id for row in ours.rows]
    for role in BASELINES:
        theirs = arm(rows, verdict.task, role)
        missing += theirs.missing if role in roles else ()
        runs += [row.run.id for row in theirs.rows]
        main = compare(ours, theirs, judged, primary=primary, judged=role in roles)
        if main is None and role in roles and not (ours.missing or theirs.missing):
            missing.append(f"{judged.name}, which the runs on {verdict.task} did not record")
        comparisons += [main, *(compare(ours, theirs, measure) for measure in beside)]
    existing = tuple(comparison for comparison in comparisons if comparison is not None)
    return replace(
        verdict, verdict=decide(existing, missing), comparisons=existing, missing=tuple(missing), runs=tuple(runs)
    )


def _quality(rows: Rows, rule: TaskRule) -> Verdict:
    verdict = Verdict(
        claim="C2",
        task=rule.task,
        title="Decoupled ST beats Identity STE, Softmax STE and ST Gumbel-Softmax",
        rule=f"{JUDGED} Compared in {rule.primary.name}. {ALL}",
        verdict="",
    )
    verdict = contest(rows, verdict, rule.primary, rule.beside, primary=True)
    return replace(verdict, notes=tuple(on_test(rule, verdict.comparisons)))


def _speed(rows: Rows, rule: TaskRule) -> Verdict:
    card = metric(rule.curve)
    verdict = Verdict(
        claim="C2 speed",
        task=rule.task,
        title="Decoupled ST learns faster than all three",
        verdict="",
        rule=f"{JUDGED} Compared in the steps until {card.label} is as good as the best baseline's last value (mean "
        "over its fresh seeds). A run that never gets there, or diverges, counts as one evaluation past the end. "
        f"{ALL}",
    )
    ends = {role: _last(rows, rule, role) for role in BASELINES}
    known = {role: end for role, end in ends.items() if end is not None}
    role = max(known, key=lambda role: card.direction * known[role], default="")
    mark = known.get(role, math.nan)
    verdict = contest(rows, verdict, reach(rule.curve, mark, _never(rows, rule)))
    if verdict.missing or not known:
        return replace(verdict, verdict=NOT_TESTED, comparisons=(), missing=verdict.missing or (NO_MARK,))
    return replace(verdict, notes=(f"the mark is {mark:.4g}, the last {card.label} of {estimator(role).label}",))


def _last(rows: Rows, rule: TaskRule, role: str) -> float | None:
    """A baseline's last value, mean over its fresh seeds that did not diverge."""
    measure = last(rule.curve)
    values = [measure.of(row) for row in arm(rows, rule.task, role).rows if row.done]
    finite = [value for value in values if math.isfinite(value)]
    return fmean(finite) if finite else None


def _never(rows: Rows, rule: TaskRule) -> float:
    """All runs of a task are evaluated at the same steps: one that did not diverge tells where the end is."""
    done = (row for role in (OURS, *BASELINES) for row in arm(rows, rule.task, role).rows if row.done)
    row = next(done, None)
    return math.nan if row is None else after_the_end(rule.curve).of(row)
