"""Figures of runs that no study asks for: a task of your own, or an objective that was tuned."""

from collections.abc import Callable, Sequence
from functools import partial

from dst_lab.cards import estimator, metric
from dst_lab.figures import Drawn
from dst_lab.figures.curves import caption, diverged, draw, having, held
from dst_lab.figures.importance import analysed, importance
from dst_lab.figures.maps import pair_map, temperature_map
from dst_lab.figures.style import listing
from dst_lab.figures.sweeps import of_group
from dst_lab.records import Rows
from dst_lab.records.groups import Group

CURVES, CELLS = 2, 3
"""Panels of training curves at most, and cells of a map at least."""


def figures_of(group: Group) -> dict[str, Callable[[Rows], Drawn]]:
    """Training curves of each estimator's best setting, what mattered of all that was varied, a map of the two
    fields that mattered most, and one for each estimator that was swept over two temperatures."""
    if not group.metrics:
        return {}
    figures: dict[str, Callable[[Rows], Drawn]] = {f"{group.name}-curves": partial(_curves, group)}
    if found := analysed(group.compared):
        figures[f"{group.name}-importance"] = lambda _: importance(group.compared, found, group.title)
        down, across, *others = found.fields
        if {down, across} != {"tau_f", "tau_b"}:
            figures[f"{group.name}-map"] = lambda _: pair_map(group.compared, down, across, others, group.title)
    swept = [name for name in group.swept if len(of_group(group, name).cells("validation_loss")) >= CELLS]
    for name in swept:
        where = group.title if len(swept) == 1 else f"{group.title}, {estimator(name).label}"
        figures[f"{group.name}-{name.replace('_', '-')}-map"] = partial(_map, group, name, where)
    return figures


def _curves(group: Group, _: Rows) -> Drawn:
    best, metrics = group.best, [one for one in group.metrics if having(group.best, one)][:CURVES]
    metrics = metrics or group.metrics[:1]
    figure = draw(best, group.task, metrics, ["runs that were trained to the end"])
    where = "at the setting of each estimator with the lowest mean validation loss"
    kinds = {setting.seeds for setting in group.found.values()}
    if kinds == {"search", "fresh"}:
        where += " over search seeds, or over fresh ones where it was found on these"
    elif kinds - {""}:
        where += f" over {' '.join(kinds)} seeds"
    if any(setting.n and setting.diverged for setting in group.settings):
        where += ", those with a diverged run last" + ("," if group.held else "")
    where += f" among the runs with {group.held}" if group.held else ""
    text = caption(having(best, metrics[0]), metric(metrics[0], group.task), where=where)
    text = (text + _lacking(group, metrics) + held(best, metrics) + diverged(best)).strip()
    return Drawn(f"Training curves, {group.title}", figure, text, len(metrics))


def _lacking(group: Group, metrics: Sequence[str]) -> str:
    """For a caption: which estimators have no curve in a panel, since a run of their best setting lacks the metric."""
    sentences = []
    for name in metrics:
        drawn = having(group.best, name)
        left = [s.look.label for estimator, s in group.best.items() if s.n and estimator not in drawn]
        if left:
            sentences.append(f" No curve of {metric(name, group.task).label}, which runs lack: {listing(left)}.")
    return "".join(sentences)


def _map(group: Group, name: str, where: str, _: Rows) -> Drawn:
    return temperature_map(of_group(group, name), group.task, group.metrics, where=where)
