"""The sections that any study can have on its page."""

from collections.abc import Mapping, Sequence
from typing import Any

from dst_lab.cards import title
from dst_lab.records import Group
from dst_lab.report.others import figures_of
from dst_lab.report.results import best_results, results
from dst_lab.report.section import Page, Section
from dst_lab.report.tables import chosen_table, provenance_table, recipe_table, settings_table
from dst_lab.report.text.answer import answers
from dst_lab.report.verdicts import board, groups, shown, tally
from dst_lab.runs import FRESH

MOST = 40
"""Rows of a table of settings."""


def _answer(names: Sequence[str], table: bool, page: Page) -> str:
    study = page.study
    # A study without tasks has no question: what there is are the other tasks, each at its best.
    outcome = results(study, page.rows) if study.tasks else best_results(study, page.others)
    return page.fill(
        "answer.html",
        answers=answers(page.verdicts, study.questions),
        results=outcome,
        mixed=any(group.seeds for group in page.others),
        held=[(group.title, group.held) for group in page.others if group.held and not study.tasks],
        table=table,
        figures=[figure for figure in page.figures(names) if not figure["drawn"].empty],
    )


def _verdicts(page: Page) -> str:
    if not page.study.rules:
        return ""
    items = shown(page.verdicts, page.study)
    return page.fill(
        "verdicts.html",
        total=len(items),
        tally=tally(page.verdicts),
        board=board(items, page.study.questions),
        groups=groups(items, page.study.questions),
        tasks=[title(task) for task in page.study.tasks],
    )


def _figures(parts: Mapping[str, Sequence[str]], page: Page) -> str:
    return page.fill("figures.html", parts={heading: page.figures(names) for heading, names in parts.items()})


def _settings(page: Page) -> str:
    return page.fill("settings.html", chosen=chosen_table(page.rows)) if page.study.recipes.searches else ""


def _others(page: Page) -> str:
    parts = [_part(page, group) for group in page.others]
    mixed = any(group.seeds for group in page.others)
    return page.fill("others.html", parts=parts, mixed=mixed, fresh=FRESH) if parts else ""


def _part(page: Page, group: Group) -> dict[str, Any]:
    """One task: its figures and its settings."""
    rows = settings_table(group)
    return {
        "title": group.title,
        "name": group.name,
        "figures": page.figures(list(figures_of(group))),
        "fields": group.told,
        "rated": any(row["lr"] for row in rows),
        "rows": rows,
        "most": MOST,
        "stopped": group.stopped,
        "failed": sum(row.run.status == "failed" for row in group.rows.runs.values()),
    }


def _runs(page: Page) -> str:
    return page.fill("runs.html")


def _reproduce(page: Page) -> str:
    return page.fill("reproduce.html", recipes=recipe_table(page.rows)) if page.study.recipes.plans else ""


def _provenance(page: Page) -> str:
    return page.fill("provenance.html", provenance=provenance_table(page.rows, page.study.changes))


VERDICTS = Section("verdicts", "Verdicts", _verdicts)
SETTINGS = Section("settings", "Settings", _settings)
OTHERS = Section("others", "Tasks", _others)
RUNS = Section("runs", "All runs", _runs)
REPRODUCE = Section("reproduce", "Reproduce", _reproduce)
PROVENANCE = Section("provenance", "Provenance", _provenance)
REST = (RUNS, REPRODUCE, PROVENANCE)
"""What every page ends with."""


def answer(*names: str, table: bool = True) -> Section:
    """What the study found: a sentence per question, the chosen settings on test data, and these figures. Without the
    `table` where the study has a better one, as of several arms of one estimator."""
    return Section("answer", "Answer", lambda page: _answer(names, table, page))


def figures(parts: Mapping[str, Sequence[str]]) -> Section:
    """The study's figures under these headings."""
    return Section("figures", "Figures", lambda page: _figures(parts, page))
