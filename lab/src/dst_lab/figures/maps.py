"""Where the optimum lies: maps over (tau_f, tau_b)."""

from collections.abc import Mapping, Sequence

import numpy as np

from dst_lab.cards import metric, title
from dst_lab.figures.heat_map import Mark, fence, heat_map, marks
from dst_lab.figures.style import HEIGHT, Drawn, absent, listing, number, panels, plus_minus
from dst_lab.figures.sweeps import cells, count_text, diverged, lost_text, optimum, rate_text, search
from dst_lab.records import Rows

Optimum = tuple[float, float]


def temperature_map(
    rows: Rows,
    task: str,
    role: str,
    metrics: Sequence[str],
    reported: Mapping[str, Optimum] | None = None,
    seeds: str = "",
) -> Drawn:
    """One panel per metric, mean over seeds, over the sweep of one estimator; `reported` optima are marked too.
    `seeds`: of which kind they are, where no search tells."""
    recipe, lost = search(rows, task, role), diverged(rows, task, role)
    missing = rows.missing(recipe, task) if recipe else []
    ours = optimum(rows, task, role)
    marked = [Mark(at, f"{whose} optimum", chosen=False) for whose, at in (reported or {}).items()]
    marked += [Mark(ours, "our optimum")] if ours else []
    figure, axes = panels(len(metrics), height=HEIGHT + 0.3)
    ended, outside = False, dict[Mark, None]()
    for ax, name in zip(axes, metrics, strict=True):
        card = metric(name, task)
        runs_at = cells(rows, task, role, name)
        if not runs_at:
            absent(ax, missing or [card.label])
            continue
        means = {
            at: card.factor * float(np.mean([row.counted(name) for row in members])) for at, members in runs_at.items()
        }
        end = fence(means.values(), card.direction)
        ended = ended or end is not None
        heat_map(ax, means, card.summary, bright_is_low=card.direction < 0, lost=lost, end=end)
        outside |= dict.fromkeys(marks(ax, {**means, **lost}, marked))
    caption = _caption(rows, task, role, metrics, reported or {}, f"{seeds} seeds".strip())
    if caption:
        caption += "".join(
            f" {label[0].upper()}{label[1:]} (τf = {f:g}, τb = {b:g}) lies outside this map."
            for (f, b), label, _ in outside
        )
    if caption and ended:
        caption += (
            " Beyond the point of a colour bar all settings have one colour, so that the others can be told apart."
        )
    return Drawn(f"Temperature map, {title(task)}", figure, caption, len(metrics), missing, (recipe,) if recipe else ())


def _caption(
    rows: Rows, task: str, role: str, metrics: Sequence[str], reported: Mapping[str, Optimum], seeds: str
) -> str:
    runs_at = cells(rows, task, role, "validation_loss")
    if not runs_at:
        return ""
    count = count_text(map(len, runs_at.values()))
    lowest = "The search is not done, so that no optimum of ours is marked."
    if not search(rows, task, role):
        lowest = _lowest(rows, task, role)
    ours = optimum(rows, task, role)
    if ours is not None and ours in runs_at:
        seeds = "search seeds"
        losses = np.array([row.best("validation_loss") for row in runs_at[ours]])
        diagonal = [
            float(np.mean([row.best("validation_loss") for row in members]))
            for (f, b), members in runs_at.items()
            if f == b
        ]
        where = "on the diagonal" if ours[0] == ours[1] else "off the diagonal"
        others = "".join(f"; {whose} optimum is τf = {f:g}, τb = {b:g}" for whose, (f, b) in reported.items())
        lowest = f"The lowest loss, {plus_minus(losses)}, lies {where} at τf = {ours[0]:g}, τb = {ours[1]:g}{others}."
        if diagonal:
            lowest += f" The lowest on the grid's own diagonal is {number(min(diagonal), 4)}."
    return (
        f"{_brighter(task, metrics)} {lowest} Each cell is the mean over n = {count} {seeds}"
        f"{rate_text(rows, task, role)}.{lost_text(diverged(rows, task, role), ' (hatched)')}"
    )


def _brighter(task: str, metrics: Sequence[str]) -> str:
    """The caption's sentence on colours."""
    cards = [metric(name, task) for name in metrics]
    neither = [card.label for card in cards if not card.direction]
    if neither:
        return f"Brighter is better, but for {listing(neither)}, where it is higher."
    maps = {1: "the map", 2: "both maps", 3: "all three maps"}.get(len(cards), f"all {len(cards)} maps")
    return f"Brighter is better in {maps}."


def _lowest(rows: Rows, task: str, role: str) -> str:
    """The caption's sentence for a sweep that no search chooses from; a setting with a run that diverged comes last."""
    runs_at, lost = cells(rows, task, role, "validation_loss"), diverged(rows, task, role)
    whole = {at: members for at, members in runs_at.items() if at not in lost}
    among = " of settings without a diverged run" if whole and len(whole) < len(runs_at) else ""
    whole = whole or runs_at
    means = {at: float(np.mean([row.best("validation_loss") for row in members])) for at, members in whole.items()}
    (f, b), loss = min(means.items(), key=lambda item: item[1])
    return f"The lowest mean loss{among}, {number(loss, 4)}, lies at τf = {f:g}, τb = {b:g}."
