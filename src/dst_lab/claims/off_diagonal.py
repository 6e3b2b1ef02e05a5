"""C1: the best temperatures lie off the diagonal tau_f = tau_b, and beat the best on it."""

import math

from dst_lab.claims.rows import NAMES, Rows, compare
from dst_lab.claims.tasks import JUDGED, TASKS, TaskRule
from dst_lab.claims.verdict import NOT_SUPPORTED, SUPPORTED, Verdict, decide
from dst_lab.configs import Config
from dst_lab.plans.plan import value_of

TITLE = "The best temperatures of Decoupled ST are not equal, and beat the best equal ones"
RULE = (
    "{judged} Supported if (a) the chosen Decoupled ST has tau_f other than tau_b and (b) it beats, in {metric}, the "
    "Softmax STE chosen among at least as many settings on the diagonal. Contradicted if that Softmax STE beats it. "
    "Otherwise not supported."
)


def judge_off_diagonal(rows: Rows) -> list[Verdict]:
    return [_judge(rows, rule) for rule in TASKS]


def _judge(rows: Rows, rule: TaskRule) -> Verdict:
    ours, theirs = (rows.arms[rule.task, role] for role in ("decoupled", "diagonal"))
    missing = (*ours.missing, *theirs.missing)
    beaten = compare(ours, theirs, rule.primary, primary=True, judged=True)
    beside = [compare(ours, theirs, measure) for measure in rule.beside]
    comparisons = tuple(found for found in (beaten, *beside) if found is not None)
    verdict, notes = decide(comparisons, missing), []
    if ours.config is not None:
        apart = not math.isclose(value_of(ours.config, "tau_f"), value_of(ours.config, "tau_b"))
        if verdict == SUPPORTED and not apart:
            verdict = NOT_SUPPORTED
        notes += _notes(rows, rule, ours.config, apart)
    return Verdict(
        claim="C1", task=rule.task, title=TITLE, rule=RULE.format(judged=JUDGED, metric=rule.primary.name),
        verdict=verdict, comparisons=comparisons, missing=missing,
        runs=tuple(row.id for side in (ours, theirs) for row in side.rows), notes=tuple(notes),
    )  # fmt: skip


def _notes(rows: Rows, rule: TaskRule, config: Config, apart: bool) -> list[str]:
    tau_f, tau_b = float(value_of(config, "tau_f")), float(value_of(config, "tau_b"))
    distance = math.dist((tau_f, tau_b), rule.optimum)
    said = [
        f"our optimum (tau_f, tau_b) = ({tau_f:g}, {tau_b:g}) lies {'off' if apart else 'on'} the diagonal; "
        f"the paper's is ({rule.optimum[0]:g}, {rule.optimum[1]:g}), {distance:.3g} away"
    ]
    counts = {role: _settings(rows, rule.task, role) for role in ("decoupled", "diagonal")}
    said.append(f"settings tried: {', '.join(f'{n} of {NAMES[role]}' for role, n in counts.items())}")
    if counts["diagonal"] < counts["decoupled"]:
        said.append("the diagonal was given fewer settings than Decoupled ST: the comparison favours Decoupled ST")
    return said + [note.strip() for note in rows.searches[rule.task, "decoupled"][1].notes(rows.lookup)]


def _settings(rows: Rows, task: str, role: str) -> int:
    plan = rows.searches[task, role][1]
    return len(plan.wanted(rows.lookup)) // len(plan.seeds)
