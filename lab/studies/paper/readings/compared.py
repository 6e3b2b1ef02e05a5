"""Each detail read otherwise, on the runs that are recorded."""

from collections.abc import Callable
from dataclasses import replace

from dst_lab.claims import Measure, Verdict
from dst_lab.claims.measures import best, converged, last, stopped
from dst_lab.claims.readings import RULE, Question, table
from dst_lab.configs.cards import ARGMAX
from dst_lab.configs.stochastic_binary import THRESHOLDS
from dst_lab.records import Rows

from studies.paper.claims.baselines import judge_baselines
from studies.paper.claims.measures import inactive_below
from studies.paper.claims.mechanisms import judge_activity, judge_convergence
from studies.paper.claims.off_diagonal import judge_off_diagonal
from studies.paper.claims.tasks import LOGIC, RULES, SBN, TaskRule


def judged_in(rows: Rows) -> Question:
    """The same runs, compared in something else."""
    verdicts = {RULE: judge_by(rows, RULES)}
    asked = {(rule.task, rule.curve) for rule in RULES}
    for name, read in COMPARED.items():
        others = [other for rule in RULES if (other := read(rule)) is not None]
        # How soon is asked of a curve: a reading by a curve that was asked before says nothing new of it.
        same = {other.task for other in others if (other.task, other.curve) in asked}
        asked |= {(other.task, other.curve) for other in others}
        verdicts[name] = [one for one in judge_by(rows, others) if one.claim != "C2 speed" or one.task not in same]
    return table(
        "What is compared", verdicts,
        "The same settings and fresh seeds. By which of a pair is better: the sign test, which one collapsed run moves "
        "no more than any other. The other forward is argmax; of logic gates, whose rule goes by argmax, "
        "the training forward.",
    )  # fmt: skip


def judge_by(rows: Rows, rules: list[TaskRule] | tuple[TaskRule, ...]) -> list[Verdict]:
    """C1, C2 and C2 speed."""
    return [*judge_off_diagonal(rows, rules), *judge_baselines(rows, rules)]


def _by(rule: TaskRule, primary: Measure, curve: str = "") -> TaskRule:
    return replace(rule, primary=primary, curve=curve or rule.curve, beside=())


def at_the_end(rule: TaskRule) -> TaskRule:
    return _by(rule, last(rule.curve))


def other_forward(rule: TaskRule) -> TaskRule:
    metric = rule.curve
    other = metric.removesuffix(ARGMAX) if metric.endswith(ARGMAX) else metric + ARGMAX
    return _by(rule, best(other), other)


def _other_metric(rule: TaskRule) -> TaskRule | None:
    """Accuracy where the rule goes by loss, and the reverse, by the same forward."""
    if rule is SBN:
        return _by(rule, best("validation_accuracy"), "validation_accuracy")
    if rule is LOGIC:
        return _by(rule, best("validation_loss_argmax"), "validation_loss_argmax")
    return None


def _on_test(rule: TaskRule, read: Callable[[str], Measure]) -> TaskRule:
    metric = rule.curve.replace("validation", "test")
    return _by(rule, read(metric), metric)


COMPARED: dict[str, Callable[[TaskRule], TaskRule | None]] = {
    "which of a pair, not by how much": lambda rule: _by(rule, replace(rule.primary, by_sign=True)),
    "last, not best": at_the_end,
    "the other forward": other_forward,
    "accuracy for loss, or loss for accuracy": _other_metric,
    "test data, at the lowest validation loss": lambda rule: _on_test(rule, stopped),
    "test data, last": lambda rule: _on_test(rule, last),
}


def active_from(rows: Rows) -> Question:
    """Every whole decade of the absolute thresholds."""
    verdicts = {f"{RULE}: 1% of the mean": [judge_activity(rows)]}
    for i, threshold in list(enumerate(THRESHOLDS))[::2]:
        verdicts[f"{threshold:.0e}"] = [judge_activity(rows, inactive_below(i, threshold))]
    return table("When a neuron is inactive", verdicts, "Activity is the mean |dL/dl| over validation images.")


def converged_from(rows: Rows) -> Question:
    """Where between the best loss and the collapsed solution, and at which evaluation."""
    verdicts = {f"{RULE}: half way, last loss": [judge_convergence(rows)]}
    for share in (0.25, 0.75):
        verdicts[f"{share:.0%} of the way"] = [judge_convergence(rows, share)]
    verdicts["half way, lowest loss"] = [judge_convergence(rows, judged=_ever)]
    return table("When a run has converged", verdicts, "On the way from the best loss to the collapsed one.")


def _ever(metric: str, threshold: float) -> Measure:
    """1 where the lowest loss over training lies below the threshold, else 0."""
    measure = converged(metric, threshold)
    return replace(measure, read=lambda history: float(history[metric].values.min() < threshold))
