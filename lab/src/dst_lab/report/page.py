"""One self-contained page from a store: a study's sections, and what else is in the store."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from dst_lab.figures import Drawn, draw
from dst_lab.records import Group, Rows, groups
from dst_lab.report.commands import scale_of
from dst_lab.report.embed.data import payload
from dst_lab.report.embed.inline import STYLE, embedded
from dst_lab.report.others import figures_of
from dst_lab.report.section import Page
from dst_lab.report.study import Figure, Study
from dst_lab.report.tables import facts
from dst_lab.report.text.glossary import GLOSSARY, occurring
from dst_lab.shown import shown
from dst_lab.store import Run, Store, run_id

PROGRAM = Path(__file__).parent / "assets" / "page.js"


def pick_scale(study: Study, store: Store) -> str:
    """The paper's where the store has runs that the study's recipes begin with at this scale alone, else quick where it
    has such; where both scales begin with them, the one of which a larger part is there. Where no recipe has begun, the
    paper's if any run is more like it."""
    recorded, scales = {run.id for run in store.runs()}, study.recipes.scales
    begun = {
        scale: {
            run_id(c.to_dict()) for make in study.recipes.plans.values() for c in make(scale).wanted(lambda _: None)
        }
        for scale in scales
    }
    for scale in scales:
        others = set[str]().union(*(ids for other, ids in begun.items() if other != scale))
        if recorded & (begun[scale] - others):
            return scale
    if any(recorded & ids for ids in begun.values()):
        return max(scales, key=lambda scale: len(recorded & begun[scale]) / max(len(begun[scale]), 1))
    return scales[0] if any(scale_of(run.config) == scales[0] for run in store.runs()) else scales[-1]


def own_runs(rows: Rows) -> list[Run]:
    """The runs of the page's scale: what the study's recipes want, and what else was trained with its values; of a
    study without recipes, all."""
    runs = [row.run for row in rows.runs.values()]
    if not rows.recipes.plans:
        return runs
    wanted = {run_id(config.to_dict()) for name in rows.recipes.plans for config in rows.wanted(name)}
    return [run for run in runs if run.id in wanted or scale_of(run.config) == rows.scale]


def left_out(rows: Rows, own: Sequence[Run], others: Sequence[Group]) -> set[str]:
    """The runs that no verdict and no figure counts: those of another scale."""
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
    figures_drawn = draw(figures(study, rows), rows) if drawn is None else drawn
    others = other_groups(study, rows)
    context = Page(study, rows, figures_drawn, others)
    own = own_runs(rows)
    sections = [(section, section.render(context)) for section in study.sections]
    written = re.sub(r"<svg.*?</svg>|<[^>]*>", " ", "".join(text for _, text in sections), flags=re.DOTALL)
    text = context.fill(
        "page.html",
        facts=facts(rows, own),
        own=len(own),
        left_out=len(left_out(rows, own, others)),
        note=study.notes.get(rows.scale, ""),
        contents=[section for section, text in sections if text],
        sections=[Markup(text) for _, text in sections if text],
        style=Markup(STYLE),
        program=Markup(PROGRAM.read_text(encoding="utf-8")),
        terms=occurring(written, {**GLOSSARY, **study.terms}),
        data=embedded(payload(context)),
    )
    return shown(str(text))
