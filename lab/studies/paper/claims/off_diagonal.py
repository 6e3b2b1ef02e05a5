"""C1: the best temperatures lie off the diagonal tau_f = tau_b, and beat the best on it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dst_lab.claims import Verdict, arm, contest
from dst_lab.claims.arms import role_name
from dst_lab.claims.verdict import NOT_SUPPORTED, SUPPORTED
from dst_lab.plans.plan import value_of
from dst_lab.records import Rows
from dst_lab.runs import Config

from studies.paper.claims.tasks import JUDGED, OURS, RULES, TaskRule, on_test

TITLE = "The best temperatures of Decoupled ST are not equal, and beat the best equal ones"
RULE = (
    "{judged} Supported if (a) the chosen Decoupled ST has tau_f other than tau_b and (b) it beats, in {metric}, two "
    "Softmax STE, which are the diagonal: the one chosen among at least as many settings, and the one tuned for C2. "
    "Contradicted if one of them beats it. Otherwise not supported."
)
DIAGONAL = "diagonal"
"""The recipe that searches along it."""
EQUAL = "the chosen Decoupled ST has tau_f equal to tau_b"


def judge_off_diagonal(rows: Rows, rules: Sequence[TaskRule] = RULES) -> list[Verdict]:
    return [_judge(rows, rule) for rule in rules]


def _judge(rows: Rows, rule: TaskRule) -> Verdict:
    ours, *equal = (arm(rows, rule.task, role) for role in (OURS, DIAGONAL, "softmax_ste"))
    claim = Verdict(claim="C1", task=rule.task, title=TITLE, rule=RULE.format(judged=JUDGED, metric=rule.primary.name))
    verdict = contest(claim, [(ours, theirs) for theirs in equal], [rule.primary], rule.shown)
    if ours.config is None:
        return verdict
    apart = not math.isclose(value_of(ours.config, "tau_f"), value_of(ours.config, "tau_b"))
    if verdict.verdict == SUPPORTED and not apart:
        verdict = replace(verdict, verdict=NOT_SUPPORTED, because=EQUAL)
    notes = [*_notes(rows, rule, ours.config, apart), *on_test(rule, verdict.comparisons)]
    return replace(verdict, notes=tuple(notes))


def _notes(rows: Rows, rule: TaskRule, config: Config, apart: bool) -> list[str]:
    tau_f, tau_b = float(value_of(config, "tau_f")), float(value_of(config, "tau_b"))
    distance = math.dist((tau_f, tau_b), rule.optimum)
    notes = [
        f"our optimum (tau_f, tau_b) = ({tau_f:g}, {tau_b:g}) lies {'off' if apart else 'on'} the diagonal; "
        f"the paper's is ({rule.optimum[0]:g}, {rule.optimum[1]:g}), {distance:.3g} away"
    ]
    plans = {role: rows.searches[rule.task, role][1] for role in (OURS, DIAGONAL)}
    counts = {role: len(plan.wanted(rows.lookup)) // len(plan.seeds) for role, plan in plans.items()}
    tried = [f"{n} of {role_name(rows, role, plans[role].base)}" for role, n in counts.items()]
    notes.append(f"settings tried: {', '.join(tried)}")
    if counts[DIAGONAL] < counts[OURS]:
        notes.append("the diagonal was given fewer settings than Decoupled ST: the comparison favours Decoupled ST")
    return notes + [note.strip() for note in plans[OURS].notes(rows.lookup)]
