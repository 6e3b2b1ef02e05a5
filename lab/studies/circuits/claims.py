"""How the question is judged. Written down before any run at full scale."""

from collections.abc import Sequence
from statistics import fmean

from dst_lab.claims import Verdict
from dst_lab.claims.verdict import NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.records import Row, Rows
from dst_lab.tasks.logic_gates import LogicGatesConfig

from studies.circuits.recipes import SIZES

TASK = LogicGatesConfig.task
METRIC = "test_accuracy_argmax"
MINUTES = 10.0
"""The time in which the largest network must be trained."""


def judge(rows: Rows) -> list[Verdict]:
    """The published accuracy of every size, and the time of the largest."""
    return [*(judge_size(rows, name) for name in SIZES), judge_time(rows)]


def judge_size(rows: Rows, name: str) -> Verdict:
    """The verdict on a size: at or above the published accuracy, or not."""
    size, (done, lost, missing) = SIZES[name], _runs(rows, f"circuits-{name}")
    ours, notes = accuracy(done), list[str]()
    if done:
        seconds = fmean(seconds_of(rows, row) for row in done)
        notes = [f"{ours:.2f}% (n = {len(done)}) after {seconds / 60:.2f} minutes, published {size.published:.2f}%"]
    verdict = NOT_TESTED
    if not missing:
        verdict = SUPPORTED if not lost and ours >= size.published else NOT_SUPPORTED
    return Verdict(
        claim=f"S1 {name}",
        task=TASK,
        title=f"{size.layers} x {size.width:,} gates reach the published accuracy",
        rule="The discretised network's share of CIFAR-10's test images at the end of training, mean over the seeds, "
        "trained on all 50,000 training images: at least the published one. Judged at paper scale alone.",
        verdict=verdict,
        missing=missing,
        runs=tuple(row.run.id for row in (*done, *lost)),
        notes=(*notes, *_remark(lost)),
    )


def judge_time(rows: Rows) -> Verdict:
    """The largest network in ten minutes of one GPU."""
    name = list(SIZES)[-1]
    size, (done, lost, missing) = SIZES[name], _runs(rows, f"circuits-{name}")
    minutes = [seconds_of(rows, row) / 60 for row in done]
    verdict = NOT_TESTED
    if not missing:
        every = all(accuracy([row]) >= size.published for row in done)
        reached = not lost and every and max(minutes) < MINUTES
        verdict = SUPPORTED if reached else NOT_SUPPORTED
    notes = [f"{max(minutes):.2f} minutes"] if minutes and not missing else []
    return Verdict(
        claim="S2",
        task=TASK,
        title=f"The largest network, {size.gates:,} gates, trains in {MINUTES:g} minutes",
        rule=f"Every run of it ends after less than {MINUTES:g} minutes on one GPU, evaluations included, with at "
        "least the published accuracy. Judged at paper scale alone.",
        verdict=verdict,
        missing=missing,
        runs=tuple(row.run.id for row in (*done, *lost)),
        notes=(*notes, *_remark(lost)),
    )


def seconds_of(rows: Rows, row: Row) -> float:
    """The seconds after which a run ended: those of its whole fleet."""
    return float(rows.store.provenance(row.run.id)["seconds"])


def accuracy(done: Sequence[Row]) -> float:
    """The mean accuracy of these runs in per cent; 0 where there are none. Rounded, because 62.14% in float32 is a
    little less."""
    return round(100 * fmean(row.last(METRIC) for row in done), 4) if done else 0.0


def _remark(lost: Sequence[Row]) -> list[str]:
    """A run that diverged reached nothing: the mean of the others is not that of all seeds."""
    return [f"{len(lost)} diverged"] if lost else []


def _runs(rows: Rows, recipe: str) -> tuple[list[Row], list[Row], tuple[str, ...]]:
    """The runs of a recipe that are done, those that diverged, and what is missing."""
    done, lost = rows.recipe(recipe, TASK, METRIC), rows.diverged(recipe, TASK)
    return done, lost, tuple(f"{text}: {rows.command(recipe)}" for text in rows.missing(recipe, TASK))
