"""One self-contained page from a store: what a study says, and what else is in the store."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dst_lab.cards import shown, title
from dst_lab.figures import Drawn, draw
from dst_lab.records import Rows, versions
from dst_lab.records.groups import Group, groups
from dst_lab.report.embed import STYLE, inline
from dst_lab.report.others import figures_of
from dst_lab.report.study import Figure, Study
from dst_lab.report.tables import (
    best_results,
    chosen_table,
    facts,
    provenance_table,
    recipe_table,
    results,
    settings_table,
)
from dst_lab.report.text import GLOSSARY, answers, prose
from dst_lab.report.verdicts import board, in_words, tally
from dst_lab.runs import FRESH
from dst_lab.store import Run, Store, run_id

MOST = 40
"""Rows of a table of settings."""
ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters["prose"] = prose


def pick_scale(study: Study, store: Store) -> str:
    """The scale of a store's runs: the first scale with a run that no other scale of the study begins with; where no
    run decides, the scale of which the larger share of first runs is there."""
    recorded, scales = {run.id for run in store.runs()}, study.recipes.scales
    first = {
        scale: {
            run_id(c.to_dict()) for make in study.recipes.plans.values() for c in make(scale).wanted(lambda _: None)
        }
        for scale in scales
    }
    for scale in scales:
        others = set[str]().union(*(ids for other, ids in first.items() if other != scale))
        if recorded & (first[scale] - others):
            return scale
    return max(reversed(scales), key=lambda scale: len(recorded & first[scale]) / max(len(first[scale]), 1))


def own_runs(rows: Rows) -> list[Run]:
    """The runs that the study's recipes want at the page's scale; of a study without recipes, all."""
    runs = [row.run for row in rows.runs.values()]
    if not rows.recipes.plans:
        return runs
    wanted = {run_id(config.to_dict()) for name in rows.recipes.plans for config in rows.wanted(name)}
    return [run for run in runs if run.id in wanted]


def left_out(rows: Rows, own: Sequence[Run], others: Sequence[Group]) -> set[str]:
    """The runs that no verdict and no figure counts."""
    return {*rows.runs} - {run.id for run in own} - {run for group in others for run in group.rows.runs}


def other_groups(study: Study, rows: Rows) -> list[Group]:
    """The store's runs of tasks that the study does not train."""
    trained = {config.task for name in study.recipes.plans for config in rows.wanted(name)}
    return groups(rows, {*study.tasks, *trained}, study.figures)


def figures(study: Study, rows: Rows) -> dict[str, Figure]:
    """Every figure of a study's page by its name, then those of other tasks in the store."""
    others = {name: make for group in other_groups(study, rows) for name, make in figures_of(group).items()}
    return {**others, **study.figures}


def page(study: Study, rows: Rows, drawn: Mapping[str, Drawn] | None = None) -> str:
    """The page as HTML. The same store gives the same text."""
    drawn = draw(figures(study, rows), rows) if drawn is None else drawn

    def shown_figures(names: Iterable[str]) -> list[dict[str, Any]]:
        """Figures as the macro `show` takes them."""
        own = {name: drawn[name] for name in names if name in drawn}
        return [{"name": name, "drawn": one, "panels": inline(name, one)} for name, one in own.items()]

    others, own, verdicts = other_groups(study, rows), own_runs(rows), study.judge(rows)
    sections = {
        "Answer": True,
        "Tables": study.tables,
        "Verdicts": study.rules,
        "Figures": study.parts,
        "Settings": study.recipes.searches,
        "Tasks": others,
        "Reproduce": study.recipes.plans,
        "Provenance": True,
    }
    text = ENVIRONMENT.get_template("page.html").render(
        study=study,
        scale=rows.scale,
        contents=[name for name, there in sections.items() if there],
        style=Markup(STYLE),
        note=study.notes.get(rows.scale, ""),
        facts=facts(rows, own),
        own=len(own),
        left_out=len(left_out(rows, own, others)),
        pooled=versions(rows.store, rows.store.runs()),
        answers=answers(verdicts, study.questions),
        # A study without tasks has no question: what there is are the other tasks, each at its best.
        results=results(study, rows) if study.tasks else best_results(study, others),
        first=shown_figures(name for name in study.first if name in drawn and not drawn[name].empty),
        tables=[make(rows) for make in study.tables.values()],
        tally=tally(verdicts),
        board=board(in_words(verdicts, study), study.questions),
        tasks=[title(task) for task in study.tasks],
        parts={heading: shown_figures(names) for heading, names in study.parts.items()},
        chosen=chosen_table(rows) if study.recipes.searches else {},
        others=[{**_part(group), "figures": shown_figures(figures_of(group))} for group in others],
        mixed=any(group.seeds for group in others),
        held=[(group.title, group.held) for group in others if group.held and not study.tasks],
        fresh=FRESH,
        recipes=recipe_table(rows),
        provenance=provenance_table(rows),
        terms={**GLOSSARY, **study.terms},
    )
    return shown(text)


def _part(group: Group) -> dict[str, Any]:
    """The settings of a task that is not the study's."""
    return {
        "title": group.title,
        "name": group.name,
        "fields": group.columns,
        "lines": settings_table(group),
        "most": MOST,
        "failed": sum(row.run.status == "failed" for row in group.rows.runs.values()),
    }
