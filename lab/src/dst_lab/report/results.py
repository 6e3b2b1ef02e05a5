"""The chosen settings on test data, and in what their study judges them: one row per estimator."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dst_lab.cards import MetricCard, estimator, metric, title
from dst_lab.figures.style import plus_minus
from dst_lab.records import Group, Rows, Setting
from dst_lab.report.study import Study
from dst_lab.report.tables import field_text, on_edge, rate_text, role_label, temperatures_text
from dst_lab.runs import OWN_FIELDS, complete

TESTED = ("test_accuracy", "test_bound", "test_loss")
"""What is shown of a task that its study names no metrics for: the first of these that its runs have, and the loss."""


@dataclass(frozen=True)
class Cell:
    """A setting on a task."""

    values: tuple[str, ...]
    """For each metric, mean ± standard deviation over the runs that did not diverge; "" where they lack it."""
    setting: str
    """Its temperatures and learning rate."""
    runs: str
    """How many runs, of which seeds, and how many diverged."""
    remark: str = ""


@dataclass(frozen=True)
class Results:
    """A table: what heads each column, and the rows, each with as many cells; None where there is no such setting."""

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    """(task, metrics), in words."""
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]

    @property
    def usual(self) -> str:
        """What most cells say of their runs."""
        counts = Counter(cell.runs for _, cells in self.rows for cell in cells if cell)
        return counts.most_common(1)[0][0] if counts else ""


def results(study: Study, rows: Rows) -> Results:
    """Every setting that the searches chose, on its confirmation runs where there are such."""
    settings = {key: one for key in rows.chosen if (one := rows.setting(*key)) is not None}
    by_task: dict[str, dict[str, Setting]] = {}
    for (task, role), setting in settings.items():
        label = role_label(rows, rows.chosen[task, role], role)
        by_task.setdefault(task, {})[label] = setting
    ordered = [role_label(rows, rows.chosen[key], key[1]) for role in study.roles for key in settings if key[1] == role]
    tasks = {task: (title(task), labelled) for task, labelled in by_task.items()}

    def remark(task: str, setting: Setting) -> str:
        about = study.remarks.get(task)
        return about(rows, setting) if about and setting.n else ""

    return _table(study, tasks, ordered, remark)


def best_results(study: Study, groups: Sequence[Group]) -> Results:
    """The best setting of each estimator among runs that no search chooses from, on the seeds it was found with."""
    if not groups:
        return Results((), ())
    tasks = {
        group.name: (group.title, {estimator(name).label: setting for name, setting in group.best.items()})
        for group in groups
        if group.best
    }
    by_name = {group.name: group for group in groups}

    def remark(name: str, setting: Setting) -> str:
        estimator = setting.config["estimator"]["name"]
        tried = (one.config for one in by_name[name].compared if one.config["estimator"]["name"] == estimator)
        return on_edge(tried, setting.config)

    return _table(study, tasks, (), remark)


def _table(
    study: Study,
    tasks: Mapping[str, tuple[str, Mapping[str, Setting]]],
    first: Iterable[str],
    remark: Callable[[str, Setting], str],
) -> Results:
    labels = dict.fromkeys([*first, *(label for _, settings in tasks.values() for label in settings)])
    cards = {task: headline(study, list(settings.values())) for task, (_, settings) in tasks.items()}
    return Results(
        tuple((name, tuple(card.summary for card in cards[task])) for task, (name, _) in tasks.items()),
        tuple(
            (
                label,
                tuple(
                    cell(settings[label], cards[task], remark(task, settings[label])) if label in settings else None
                    for task, (_, settings) in tasks.items()
                ),
            )
            for label in labels
        ),
    )


def headline(study: Study, settings: Sequence[Setting]) -> list[MetricCard]:
    """The cards of the metrics that stand for a task, whose settings these are."""
    task = str(settings[0].config["task"])
    names = study.headline.get(task, ())
    if not names:
        had = {one for setting in settings for row in setting.rows for one in row.history}
        names = (*[one for one in TESTED if one in had][:1], "validation_loss")
    return [metric(name, task) for name in names]


def cell(setting: Setting, cards: Sequence[MetricCard], remark: str) -> Cell:
    """One setting in these metrics."""
    lost = f", {setting.diverged} diverged" if setting.diverged else ""
    taus = temperatures_text(setting.config["estimator"])
    rate = f"lr {lr}" if (lr := rate_text(setting.config)) else ""
    seeds = f"{setting.seeds} seed".strip() + "s" * (setting.n != 1)
    return Cell(
        values=tuple(_value(setting, card) for card in cards),
        setting=", ".join(filter(None, (taus, rate, field_text(_parameters(setting.config))))),
        runs=f"n = {setting.n} {seeds}{lost}",
        remark=remark,
    )


def _parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an objective of somebody's own was given beside temperatures and learning rate."""
    given = complete(config)
    fields = (
        {name: given[name] for name in OWN_FIELDS if name != "lr" and name in given} if "objective" in config else {}
    )
    return fields | dict(given.get("parameters", {}))


def _value(setting: Setting, card: MetricCard) -> str:
    values = card.factor * np.array([row.counted(card.name) for row in setting.rows if row.has(card.name)])
    return plus_minus(values) if len(values) else "diverged" if setting.diverged else ""
