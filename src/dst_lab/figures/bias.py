"""How far an estimator's gradient is from the exact one, and how much it varies."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from dst_lab.figures.curves import ROLES
from dst_lab.figures.maps import diagonal, heat_map, plain_logarithm
from dst_lab.figures.rows import Row, Rows
from dst_lab.figures.style import HEIGHT, LOOKS, Drawn, absent, number, panels

TASK = RECIPE = "bias-variance"
MEASURES = (("bias", "bias, |E e - g| / |g|"), ("variance", "variance, tr Cov(e) / |g|²"))


def variance(rows: Rows) -> Drawn:
    """Bias and variance of Decoupled ST over both temperatures, and of every estimator beside each other."""
    found = measured(rows)
    missing = rows.missing(RECIPE, TASK)
    figure, axes = panels(3, height=HEIGHT + 0.3)
    for ax, (metric, label) in zip(axes, MEASURES, strict=False):
        means = {(f, b): mean(there, metric) for (f, b), there in found.get("decoupled", {}).items() if f is not None}
        if not means:
            absent(ax, missing)
            continue
        settings = {(f, b): value for (f, b), value in means.items() if b is not None}
        heat_map(ax, settings, label, bright_is_low=True, log=True)
        diagonal(ax, settings)
    if found:
        _plane(axes[2], found)
    else:
        absent(axes[2], missing)
    return Drawn("Bias and variance of the gradient", figure, _caption(found), 3, missing, (RECIPE,))


def measured(rows: Rows) -> dict[str, dict[tuple[float | None, float | None], list[Row]]]:
    """Estimator -> (tau_f, tau_b) -> runs."""
    found: dict[str, dict[tuple[float | None, float | None], list[Row]]] = {}
    for row in rows.recipe(RECIPE, TASK, "bias", "variance"):
        found.setdefault(row.run.estimator, {}).setdefault(row.taus[:2], []).append(row)
    return found


def mean(rows: list[Row], metric: str) -> float:
    """At the end of training, over seeds."""
    return float(np.mean([row.last(metric) for row in rows]))


def _plane(ax: Axes, found: Mapping[str, Mapping[tuple[float | None, float | None], list[Row]]]) -> None:
    for role in (role for role in ROLES if role in found):
        look = LOOKS[role]
        points = [(mean(there, "bias"), mean(there, "variance")) for _, there in sorted(found[role].items(), key=str)]
        line = "none" if role == "decoupled" else look.line
        ax.plot(*zip(*points, strict=True), color=look.color, ls=line, marker=look.marker, lw=1, label=look.name)
    ax.set(xscale="log", yscale="log", xlabel=MEASURES[0][1], ylabel=MEASURES[1][1])
    for axis in (ax.xaxis, ax.yaxis):
        plain_logarithm(axis)
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, columnspacing=1.0)


def _caption(found: Mapping[str, Mapping[tuple[float | None, float | None], list[Row]]]) -> str:
    if not found:
        return ""
    n = sorted({len(there) for settings in found.values() for there in settings.values()})
    said = []
    if "decoupled" in found:
        for metric in ("bias", "variance"):
            at, there = min(found["decoupled"].items(), key=lambda item: mean(item[1], metric))
            said.append(f"{metric} is lowest, {number(mean(there, metric))}, at τf = {at[0]:g}, τb = {at[1]:g}")
    where = f" Of Decoupled ST, {'; '.join(said)}." if said else ""
    return (
        "On an autoencoder small enough to sum over every code, the gradient e that an estimator sends back beside the "
        f"exact one, g, at the end of training.{where} Right: every setting of every estimator; the lower left corner "
        f"would be exact. n = {n[0] if len(n) == 1 else f'{n[0]} to {n[-1]}'} seeds a setting."
    )
