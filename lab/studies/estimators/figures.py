"""The study's figures: curves of every arm, maps over both temperatures, and bias against variance."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dst_lab.cards import estimator, metric
from dst_lab.figures.curves import diverged, frame
from dst_lab.figures.heat_map import Mark, heat_map, marks
from dst_lab.figures.style import HEIGHT, Drawn, absent, letter, listing, number, panels, plus_minus
from dst_lab.records import Row, Rows, Setting, spread, together
from dst_lab.tasks.bias_variance import BiasVarianceConfig
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from studies.estimators.recipes import MAP_ROLES, MAPPED, RECIPES, SEARCHES, SHAPES, TUNED, role_of
from studies.estimators.tables import label

TASK, EXACT = CategoricalVAEConfig.task, BiasVarianceConfig.task
BIAS, VARIANCE = "bias_rescaled", "variance_rescaled"
BROKEN = 1.5
"""A run broke where its last loss is so many times the lowest of its panel."""
APART = (0, (1, 1))
"""How the second ReinMax, whose temperatures are apart, is drawn."""


def curves(rows: Rows) -> Drawn:
    """Validation -ELBO over training, one panel per shape, every arm at what its search chose."""
    figure, axes = panels(len(SHAPES), height=HEIGHT + 0.9)
    card = metric("validation_loss", TASK)
    sentences, missing = [], list[str]()
    for ax, shape in zip(axes, SHAPES, strict=True):
        chosen = {arm: rows.setting(TASK, role_of(shape, arm)) for arm in TUNED}
        settings = {arm: setting for arm, setting in chosen.items() if setting is not None and setting.n}
        lacking = [text for arm in TUNED if arm not in settings for text in rows.missing(role_of(shape, arm), TASK)]
        missing += lacking
        if not settings:
            absent(ax, lacking[:3])
            continue
        kept = _unbroken(settings)
        for arm, rows_kept in kept.items():
            _curve(ax, arm, rows_kept, settings[arm].n)
        frame(ax, [together(rows_kept, "validation_loss")[1] for rows_kept in kept.values()])
        ax.set(xlabel="epoch", ylabel=card.axis)
        ax.set_title(f"{shape.replace('x', ' x ')} codes")
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.17), ncols=2, columnspacing=1.0)
        sentences.append(_order(shape, kept, settings) + diverged(settings))
    caption = (
        ("At the end of training, mean ± standard deviation over seeds: " + " ".join(sentences)) if sentences else ""
    )
    caption += (
        f" Line: mean; band: one standard deviation, both without the seeds that broke, whose last loss is above "
        f"{BROKEN:g} times the lowest. The first tenth of training may lie outside the frame."
    )
    return Drawn(
        "-ELBO over training", figure, caption if sentences else "", len(axes), missing, (*SEARCHES, RECIPES.confirm)
    )


def _unbroken(settings: Mapping[str, Setting]) -> dict[str, list[Row]]:
    """The runs of each arm without those that broke; without the arms of which all did."""
    lowest = min(row.last("validation_loss") for setting in settings.values() for row in setting.rows)
    kept = {
        arm: [row for row in setting.rows if row.last("validation_loss") <= BROKEN * lowest]
        for arm, setting in settings.items()
    }
    return {arm: rows for arm, rows in kept.items() if rows}


def _curve(ax: Axes, arm: str, rows: list[Row], runs: int) -> None:
    look, (x, values) = estimator(TUNED[arm].estimator), together(rows, "validation_loss")
    apart = arm == "reinmax-decoupled"
    mean, width = values.mean(0), spread(values)
    ax.fill_between(x, mean - width, mean + width, color=look.color, alpha=0.15, lw=0)
    broke = f" ({runs - len(rows)} of {runs} broke)" if len(rows) < runs else ""
    style = {"ls": APART} if apart else {"ls": look.line, "marker": look.marker, "markevery": max(1, len(x) // 5)}
    ax.plot(x, mean, color=look.color, label=label(arm) + broke, **style)


def _order(shape: str, kept: Mapping[str, list[Row]], settings: Mapping[str, Setting]) -> str:
    """The arms of a shape, the lowest first."""
    ends = {arm: np.array([row.last("validation_loss") for row in rows]) for arm, rows in kept.items()}
    order = sorted(ends, key=lambda arm: float(ends[arm].mean()))
    parts = []
    for arm in order:
        broke = settings[arm].n - len(ends[arm])
        note = f", {broke} broke" if broke else ""
        parts.append(f"{label(arm)} {plus_minus(ends[arm])} (n = {len(ends[arm])}{note})")
    parts += [f"{label(arm)} (all {setting.n} broke)" for arm, setting in settings.items() if arm not in kept]
    return f"{shape.replace('x', ' x ')} codes: {listing(parts)}."


def maps(rows: Rows) -> Drawn:
    """Validation -ELBO over both temperatures, of Decoupled ST and of ReinMax, at one learning rate."""
    recipe = "vae-maps"
    missing = rows.missing(recipe, TASK)
    figure, axes = panels(len(MAP_ROLES), height=HEIGHT + 0.5)
    sentences = []
    for ax, role in zip(axes, MAP_ROLES, strict=True):
        values_at = _cells(rows, recipe, role)
        if not values_at:
            absent(ax, missing)
            continue
        lost = [taus for row in rows.diverged(recipe, TASK) if (taus := _taus(row)) and row.run.estimator == role]
        heat_map(ax, values_at, metric("validation_loss", TASK).summary, bright_is_low=True, lost=lost)
        best = min(values_at, key=lambda at: values_at[at])
        marks(ax, [*values_at, *lost], [Mark(best, "lowest")])
        ax.set_title(estimator(role).label)
        at_one = values_at.get((1.0, 1.0))
        label, (f, b) = estimator(role).label, best
        lowest = f"{label} is lowest, {number(values_at[best], 4)} nats, at τf = {f:g}, τb = {b:g}"
        sentences.append(lowest + (f" (at both 1: {number(at_one, 4)})" if at_one is not None else ""))
    caption = f"{MAPPED.replace('x', ' x ')} codes, learning rate 1e-3, one seed per cell. {'; '.join(sentences)}."
    return Drawn("Both temperatures", figure, caption if sentences else "", len(axes), missing, (recipe,))


def _cells(rows: Rows, recipe: str, role: str) -> dict[tuple[float, float], float]:
    """(tau_f, tau_b) -> the lowest validation loss, mean over seeds."""
    values_at: dict[tuple[float, float], list[float]] = {}
    for row in rows.recipe(recipe, TASK, "validation_loss"):
        taus = _taus(row)
        if row.run.estimator == role and taus:
            values_at.setdefault(taus, []).append(row.best("validation_loss"))
    return {at: float(np.mean(values)) for at, values in values_at.items()}


def _taus(row: Row) -> tuple[float, float] | None:
    tau_f, tau_b = row.taus[:2]
    return None if tau_f is None or tau_b is None else (tau_f, tau_b)


def bias(rows: Rows) -> Drawn:
    """Bias across, variance up, a point for every estimator and temperature, joined along the temperatures."""
    recipe = "estimator-bias"
    missing = rows.missing(recipe, EXACT)
    figure, (ax,) = panels(1, width=6.2, height=HEIGHT + 1.3)
    points_of = _points(rows, recipe)
    if not points_of:
        absent(ax, missing)
        return Drawn("Bias against variance", figure, "", 1, missing, (recipe,))
    ax.set(yscale="log", xlabel="bias, |s E e - g| / |g|", ylabel="variance, tr Cov(s e) / |g|²")
    for name, points in points_of.items():
        look = estimator(name)
        line = "none" if len(points[0][0]) > 1 else "-"  # two temperatures are a plane: nothing to join
        style: dict[str, Any] = {"color": look.color, "ls": line, "marker": look.marker}
        ax.plot([x for _, x, _ in points], [y for *_, y in points], lw=1, alpha=0.8, label=look.label, **style)
        taus, x, y = points[-1]
        ends = ", ".join(f"{letter(key)} {value:g}" for key, value in taus.items())
        ax.annotate(ends, (x, y), textcoords="offset points", xytext=(5, 3), fontsize=7, color=look.color)
    ax.set_xlim(left=0)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(loc="upper center", bbox_to_anchor=(0.48, -0.13), ncols=3, columnspacing=1.0)
    lowest = min(
        ((x, name, taus) for name, points in points_of.items() for taus, x, _ in points), key=lambda one: one[0]
    )
    where = ", ".join(f"{key} {value:g}" for key, value in lowest[2].items())
    caption = (
        "On an autoencoder small enough to sum over every code, the gradient e that an estimator sends back and the "
        "exact one, g, at the end of training; s gives e the length that brings it nearest to g on average. Every "
        "point is a setting, mean over seeds; a line joins the temperatures of one estimator, the last of which is "
        f"written at its end. The lower left corner would be exact. The least bias, {number(lowest[0])}, has "
        f"{estimator(lowest[1]).label} at {where}. Seeds per setting: {_seeds(rows, recipe)}."
    )
    return Drawn("Bias against variance", figure, caption, 1, missing, (recipe,))


def _seeds(rows: Rows, recipe: str) -> str:
    """For a caption: over how many seeds each estimator is."""
    seeds: dict[str, set[int]] = {}
    for row in rows.recipe(recipe, EXACT, BIAS, VARIANCE):
        seeds.setdefault(row.run.estimator, set()).add(row.run.seed)
    by_count: dict[int, list[str]] = {}
    for name, own in seeds.items():
        by_count.setdefault(len(own), []).append(estimator(name).label)
    if len(by_count) == 1:
        return str(next(iter(by_count)))
    return listing([f"{count} of {listing(names)}" for count, names in sorted(by_count.items(), reverse=True)])


def _points(rows: Rows, recipe: str) -> dict[str, list[tuple[dict[str, float], float, float]]]:
    """Estimator -> (temperatures, bias, variance), in the order of the temperatures."""
    runs: dict[tuple[str, tuple[tuple[str, float], ...]], list[Row]] = {}
    for row in rows.recipe(recipe, EXACT, BIAS, VARIANCE):
        given = row.run.config["estimator"]
        axes = {name for tuned in TUNED.values() if tuned.estimator == given["name"] for name, _ in tuned.axes}
        taus = tuple((key, float(given[key])) for key in sorted(axes, reverse=True))  # tau_f before tau_b
        runs.setdefault((row.run.estimator, taus), []).append(row)
    points: dict[str, list[tuple[dict[str, float], float, float]]] = {}
    for (name, taus), members in sorted(runs.items(), key=lambda item: item[0][1]):
        x, y = (float(np.mean([row.last(which) for row in members])) for which in (BIAS, VARIANCE))
        points.setdefault(name, []).append((dict(taus), x, y))
    return {name: points[name] for name in dict.fromkeys(t.estimator for t in TUNED.values()) if name in points}


FIGURES = {"elbo-curves": curves, "temperature-maps": maps, "bias-against-variance": bias}
