"""Where the optimum lies: maps over (tau_f, tau_b), and over any two fields that were varied."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dst_lab.cards import metric, title
from dst_lab.figures.heat_map import Mark, equal_cells, fence, heat_map, marks
from dst_lab.figures.style import HEIGHT, Drawn, absent, listing, number, panels, plus_minus, safe
from dst_lab.figures.sweeps import At, Sweep, count_text, flat, lost_text
from dst_lab.records import Row, Setting
from dst_lab.records.fields import by_size
from dst_lab.records.summary import values
from dst_lab.runs import complete


def temperature_map(
    sweep: Sweep, task: str, metrics: Sequence[str], reported: Mapping[str, At] | None = None, where: str = ""
) -> Drawn:
    """One panel per metric, mean over seeds; `reported` optima are marked too. `where` is the task unless given."""
    marked = [Mark(at, f"{whose} optimum", chosen=False) for whose, at in (reported or {}).items()]
    marked += [Mark(sweep.chosen, "our optimum")] if sweep.chosen else []
    figure, axes = panels(len(metrics), height=HEIGHT + 0.3)
    ended, outside = False, dict[Mark, None]()
    for ax, name in zip(axes, metrics, strict=True):
        card = metric(name, task)
        runs_at = sweep.cells(name)
        if not runs_at:
            absent(ax, sweep.missing or [card.label])
            continue
        means = {at: card.factor * float(values(members, name).mean()) for at, members in runs_at.items()}
        end = fence(means.values(), card.direction)
        ended = ended or end is not None
        heat_map(ax, means, card.summary, bright_is_low=card.direction < 0, lost=sweep.lost, end=end)
        outside |= dict.fromkeys(marks(ax, {**means, **sweep.lost}, marked))
    caption = _caption(sweep, task, metrics, reported or {})
    if caption:
        caption += "".join(
            f" {label[0].upper()}{label[1:]} (τf = {f:g}, τb = {b:g}) lies outside this map."
            for (f, b), label, _ in outside
        )
    if caption and ended:
        caption += (
            " Beyond the point of a colour bar all settings have one colour, so that the others can be told apart."
        )
    recipes = filter(None, [sweep.recipe])
    heading = f"Temperature map, {where or title(task)}"
    return Drawn(heading, figure, caption, len(metrics), [*sweep.missing], (*recipes,))


def _caption(sweep: Sweep, task: str, metrics: Sequence[str], reported: Mapping[str, At]) -> str:
    runs_at = sweep.cells("validation_loss")
    if not runs_at:
        return ""
    lowest = "The search is not done, so that no optimum of ours is marked."
    if not sweep.recipe:
        lowest = _lowest(sweep)
    elif sweep.chosen in runs_at:
        lowest = _chosen(sweep.chosen, runs_at, reported) + sweep.on_edge(sweep.chosen)
    count = count_text(map(len, runs_at.values()))
    return (
        f"{_brighter(task, metrics)} {lowest} Each cell is the mean over n = {count} {sweep.seeds}"
        f"{sweep.where}.{lost_text(sweep.lost, ' (hatched)')}"
    )


def _chosen(at: At, runs_at: Mapping[At, list[Row]], reported: Mapping[str, At]) -> str:
    """The caption's sentence for what a search chose."""
    losses = values(runs_at[at], "validation_loss")
    diagonal = [_mean(members) for (f, b), members in runs_at.items() if f == b]
    where = "on the diagonal" if at[0] == at[1] else "off the diagonal"
    others = "".join(f"; {whose} optimum is τf = {f:g}, τb = {b:g}" for whose, (f, b) in reported.items())
    text = f"The lowest loss, {plus_minus(losses)}, lies {where} at τf = {at[0]:g}, τb = {at[1]:g}{others}."
    return text + (f" The lowest on the grid's own diagonal is {number(min(diagonal), 4)}." if diagonal else "")


def _lowest(sweep: Sweep) -> str:
    """The caption's sentence for a sweep that no search chooses from; a setting with a run that diverged comes last."""
    runs_at, lost = sweep.cells("validation_loss"), sweep.lost
    whole = {at: members for at, members in runs_at.items() if at not in lost}
    among = " of settings without a diverged run" if whole and len(whole) < len(runs_at) else ""
    means = {at: _mean(members) for at, members in (whole or runs_at).items()}
    (f, b), loss = min(means.items(), key=lambda item: item[1])
    return f"The lowest mean loss{among}, {number(loss, 4)}, lies at τf = {f:g}, τb = {b:g}.{sweep.on_edge((f, b))}"


def _mean(members: Sequence[Row]) -> float:
    return float(values(members, "validation_loss").mean())


def _brighter(task: str, metrics: Sequence[str]) -> str:
    """The caption's sentence on colours."""
    cards = [metric(name, task) for name in metrics]
    neither = [card.label for card in cards if not card.direction]
    if neither:
        return f"Brighter is better, but for {listing(neither)}, where it is higher."
    maps = {1: "the map", 2: "both maps", 3: "all three maps"}.get(len(cards), f"all {len(cards)} maps")
    return f"Brighter is better in {maps}."


def pair_map(settings: Sequence[Setting], down: str, across: str, others: Sequence[str], where: str) -> Drawn:
    """A cell per pair of values, equally large: the best setting that has both, by its mean over seeds; `others` are
    the names of what else was varied."""
    losses: dict[tuple[str, str], float] = {}
    for one in settings:
        fields = flat(complete(one.config))
        pair = _text(fields.get(down)), _text(fields.get(across))
        if one.n:
            mean = float(np.mean([row.best("validation_loss") for row in one.rows]))
            losses[pair] = min(mean, losses.get(pair, math.inf))
    rows, columns = (sorted({pair[i] for pair in losses}, key=by_size) for i in (0, 1))
    cells = np.full((len(rows), len(columns)), np.nan)
    for (row, column), loss in losses.items():
        cells[rows.index(row), columns.index(column)] = loss
    figure, (ax,) = panels(1, height=HEIGHT + 0.3)
    equal_cells(ax, cells, "lowest validation loss", bright_is_low=True, end=fence(losses.values(), -1))
    for axis, texts in ((ax.xaxis, columns), (ax.yaxis, rows)):
        axis.set_ticks(np.arange(len(texts)) + 0.5, [safe(text) for text in texts])
        axis.set_tick_params(length=0)
    ax.set(xlabel=safe(across), ylabel=safe(down))
    best = min(losses, key=lambda pair: losses[pair])
    rest = f", whatever its {listing(others)}" if others else ""
    caption = (
        f"Brighter is better. A cell is the best setting with its two values{rest}: the mean over "
        f"{settings[0].seeds_text}. The lowest, {number(losses[best], 4)}, lies at {down} = {best[0]}, "
        f"{across} = {best[1]}."
    )
    return Drawn(f"Map of the two fields that mattered most, {where}", figure, caption)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
