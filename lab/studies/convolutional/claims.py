"""How the question is judged. Written before the runs that judge."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dst_lab.claims import Verdict
from dst_lab.claims.verdict import NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.records import Row, Rows
from dst_lab.runs import WHOLE

TASK = "logic-conv"
METRIC = "test_accuracy"
SOFT = {"name": "soft", "tau": 1.0}
MINUTES = 10.0
ATTEMPTS = {"": range(2000, 3000), "second attempt": range(1000, 2000), "first attempt": range(1000)}
"""Their seeds; the runs without a name judge."""


@dataclass(frozen=True)
class Size:
    """A published network on a data set.

    Attributes:
        net, dataset: as in the records.
        label: in words.
        published: per cent of the test images, argmax gates (Petersen et al., 2024).
        gates: what is published of them, after synthesis.
        seeds: how many runs judge.
    """

    net: str
    dataset: str
    label: str
    published: float
    gates: float
    seeds: int


SIZES = (
    Size("cifar10-s", "cifar10", "CIFAR-10 S", 60.38, 0.40e6, 5),
    Size("cifar10-m", "cifar10", "CIFAR-10 M", 71.01, 3.08e6, 3),
    Size("mnist-s", "mnist", "MNIST S", 98.46, 147e3, 3),
    Size("mnist-m", "mnist", "MNIST M", 99.23, 566e3, 3),
    Size("mnist-l", "mnist", "MNIST L", 99.35, 1.27e6, 3),
)


def judge(rows: Rows) -> list[Verdict]:
    """The published accuracy of every size, and the time of each training."""
    return [*(judge_size(rows, size) for size in SIZES), judge_time(rows)]


def judge_size(rows: Rows, size: Size) -> Verdict:
    """The verdict on a size: at or above the published accuracy, or not."""
    done = judged(rows, size.net, size.dataset)
    missing = _missing(size, done)
    ours = accuracy(done)
    spread = f", {min(map(percent, done)):.2f} to {max(map(percent, done)):.2f}" if len(done) > 1 else ""
    notes = [f"{ours:.2f}% (n = {len(done)}{spread}), published {size.published:.2f}%"] if done else []
    verdict = NOT_TESTED if missing else SUPPORTED if ours >= size.published else NOT_SUPPORTED
    return Verdict(
        claim=f"L1 {size.net}",
        task=TASK,
        title=f"{size.label} reaches the published accuracy",
        rule="Trained on all training images, the share of the official test images after the last step, by argmax, "
        "mean over fresh seeds, no choice among checkpoints or seeds: at least the published one.",
        verdict=verdict,
        missing=missing,
        runs=tuple(row.run.id for row in done),
        notes=tuple(notes),
    )


def judge_time(rows: Rows) -> Verdict:
    """CIFAR-10 S and M in minutes."""
    sizes = [size for size in SIZES if size.dataset == "cifar10"]
    done = [row for size in sizes for row in judged(rows, size.net, size.dataset)]
    missing = tuple(text for size in sizes for text in _missing(size, judged(rows, size.net, size.dataset)))
    longest = max((minutes(rows, row) for row in done), default=0.0)
    verdict = NOT_TESTED if missing else SUPPORTED if longest < MINUTES else NOT_SUPPORTED
    return Verdict(
        claim="L2",
        task=TASK,
        title=f"CIFAR-10 S and M train in less than {MINUTES:g} minutes",
        rule=f"Every judging run of both ends less than {MINUTES:g} minutes after it began, on one GPU that other runs "
        "used at the same time.",
        verdict=verdict,
        missing=missing,
        runs=tuple(row.run.id for row in done),
        notes=(f"the longest took {longest:.1f} minutes",) if done else (),
    )


def judged(rows: Rows, net: str, dataset: str, attempt: str = "") -> list[Row]:
    """The tested runs of a network, each by itself, at the setting of an attempt; the first held images out."""
    wanted: dict[str, Any] = {"net": net, "dataset": dataset + WHOLE, "members": 1}
    if attempt == "first attempt":
        wanted |= {"dataset": dataset, "wiring": "structured", "anneal": 0.25, "estimator": SOFT}
    seeds, runs = ATTEMPTS[attempt], [row for row in tested(rows) if wanted.items() <= row.run.config.items()]
    return [row for row in runs if row.run.seed in seeds]


def tested(rows: Rows) -> list[Row]:
    """The runs whose test images were measured, those of the published recipe: without edges and without a teacher."""
    runs = [row for row in rows.runs.values() if row.run.task == TASK and row.has(METRIC)]
    return [row for row in runs if row.run.config.keys().isdisjoint({"edges", "teacher"})]


def own(rows: Rows) -> list[Row]:
    """The runs with edges or a teacher."""
    runs = [row for row in rows.runs.values() if row.run.task == TASK]
    return [row for row in runs if not row.run.config.keys().isdisjoint({"edges", "teacher"})]


def percent(row: Row) -> float:
    return 100 * row.last(METRIC)


def accuracy(done: list[Row]) -> float:
    """The mean of these runs in per cent, to a hundredth of an image; 0 where there are none."""
    return round(fmean(map(percent, done)), 4) if done else 0.0


def minutes(rows: Rows, row: Row) -> float:
    """How long a run took, while others ran on the same GPU."""
    return float(rows.store.provenance(row.run.id)["seconds"]) / 60


def _missing(size: Size, done: list[Row]) -> tuple[str, ...]:
    lacking = size.seeds - len(done)
    return (f"{lacking} of {size.seeds} runs of {size.label}",) if lacking > 0 else ()
