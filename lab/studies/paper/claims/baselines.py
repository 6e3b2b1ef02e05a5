"""C2: Decoupled ST against the three other estimators, each tuned: how good, and how soon."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from dst_lab.cards import estimator, metric
from dst_lab.claims import Measure, Verdict, arm, contest
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


def against_baselines(
    rows: Rows, claim: Verdict, judged: Measure, shown: Sequence[Measure] = (), roles: Sequence[str] = BASELINES
) -> Verdict:
    """Decoupled ST against every baseline; those in `roles` enter the verdict with the measure `judged`."""
    ours = arm(rows, claim.task, OURS)
    pairs = {role: (ours, arm(rows, claim.task, role)) for role in BASELINES}
    aside = [pair for role, pair in pairs.items() if role not in roles]
    claim = replace(claim, rule=f"{JUDGED} Compared in {claim.rule}")
    return contest(claim, [pairs[role] for role in roles], [judged], shown, aside)


def _quality(rows: Rows, rule: TaskRule) -> Verdict:
    claim = Verdict(
        claim="C2",
        task=rule.task,
        title="Decoupled ST beats Identity STE, Softmax STE and ST Gumbel-Softmax",
        rule=f"{rule.primary.name}. {ALL}",
    )
    verdict = against_baselines(rows, claim, rule.primary, rule.shown)
    return replace(verdict, notes=tuple(on_test(rule, verdict.comparisons)))


def _speed(rows: Rows, rule: TaskRule) -> Verdict:
    card = metric(rule.curve)
    claim = Verdict(
        claim="C2 speed",
        task=rule.task,
        title="Decoupled ST learns faster than all three",
        rule=f"the steps until {card.label} is as good as the best baseline's last value (mean over its fresh seeds). "
        f"A run that never gets there, or diverges, counts as one evaluation past the end. {ALL}",
    )
    ends = {role: _last(rows, rule, role) for role in BASELINES}
    known = {role: end for role, end in ends.items() if end is not None}
    role = max(known, key=lambda role: card.direction * known[role], default="")
    mark = known.get(role, math.nan)
    # All runs of a task are evaluated at the same steps: one that did not diverge tells where the end is.
    done = (row for one in (OURS, *BASELINES) for row in arm(rows, rule.task, one).rows if row.done)
    end = next((after_the_end(rule.curve).of(row) for row in done), math.nan)
    verdict = against_baselines(rows, claim, reach(rule.curve, mark, end))
    if verdict.missing or not known:
        return replace(verdict, verdict=NOT_TESTED, comparisons=(), missing=verdict.missing or (NO_MARK,))
    return replace(verdict, notes=(f"the mark is {mark:.4g}, the last {card.label} of {estimator(role).label}",))


def _last(rows: Rows, rule: TaskRule, role: str) -> float | None:
    """A baseline's last value, mean over its fresh seeds that did not diverge."""
    measure = last(rule.curve)
    values = [measure.of(row) for row in arm(rows, rule.task, role).rows if row.done]
    finite = [value for value in values if math.isfinite(value)]
    return fmean(finite) if finite else None
