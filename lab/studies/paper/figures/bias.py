"""How far an estimator's gradient is from the exact one, and how much it varies."""

from collections.abc import Mapping

import numpy as np
from dst_lab.cards import estimator
from dst_lab.figures.heat_map import diagonal, heat_map
from dst_lab.figures.style import HEIGHT, Drawn, absent, listing, number, panels
from dst_lab.records import Row, Rows
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from studies.paper.claims.tasks import OURS, ROLES

TASK = RECIPE = "bias-variance"
MEASURES = (
    ("bias_rescaled", "bias, |s E e - g| / |g|", False),
    ("variance_rescaled", "variance, tr Cov(s e) / |g|²", True),
)
"""Both are of s e, whose length is right: tau_b mostly changes the length, which swamps the rest where g is small."""


def variance(rows: Rows) -> Drawn:
    """Bias and variance of Decoupled ST over both temperatures, and of every estimator side by side."""
    by_role = measured(rows)
    missing = rows.missing(RECIPE, TASK)
    figure, axes = panels(3, height=HEIGHT + 0.3)
    for ax, (metric, label, log) in zip(axes, MEASURES, strict=False):
        means = {(f, b): mean(members, metric) for (f, b), members in by_role.get(OURS, {}).items() if f is not None}
        if not means:
            absent(ax, missing)
            continue
        settings = {(f, b): value for (f, b), value in means.items() if b is not None}
        heat_map(ax, settings, label, bright_is_low=True, log=log)
        diagonal(ax, settings)
    if by_role:
        _plane(axes[2], by_role)
    else:
        absent(axes[2], missing)
    lost = len(rows.diverged(RECIPE, TASK))
    caption = _caption(by_role) + (f" Left out, since they diverged: {lost} runs." if lost else "")
    return Drawn("Bias and variance of the gradient", figure, caption, 3, missing, (RECIPE,))


def measured(rows: Rows) -> dict[str, dict[tuple[float | None, float | None], list[Row]]]:
    """Estimator -> (tau_f, tau_b) -> runs."""
    by_role: dict[str, dict[tuple[float | None, float | None], list[Row]]] = {}
    for row in rows.recipe(RECIPE, TASK, "bias_rescaled", "variance_rescaled"):
        by_role.setdefault(row.run.estimator, {}).setdefault(row.taus[:2], []).append(row)
    return by_role


def mean(rows: list[Row], metric: str) -> float:
    """The mean of a metric at the end of training, over seeds."""
    return float(np.mean([row.last(metric) for row in rows]))


def _plane(ax: Axes, by_role: Mapping[str, Mapping[tuple[float | None, float | None], list[Row]]]) -> None:
    """Bias across, variance up, by decades; what has no variance is marked on the axis itself."""
    (across, x_label, _), (up, y_label, _) = MEASURES
    ax.set(yscale="log", xlabel=x_label, ylabel=y_label, xlim=(0, 1.04))
    for role in (role for role in ROLES if role in by_role):
        look = estimator(role)
        points = [(mean(members, across), mean(members, up)) for _, members in sorted(by_role[role].items(), key=str)]
        line = "none" if role == OURS else look.line
        if not any(variance for _, variance in points):
            ax.plot(
                [bias for bias, _ in points],
                [0] * len(points),
                look.marker,
                color=look.color,
                ms=7,
                clip_on=False,
                transform=ax.get_xaxis_transform(),
                label=f"{look.label} (variance 0)",
                zorder=5,
            )
            continue
        ax.plot(*zip(*points, strict=True), color=look.color, ls=line, marker=look.marker, lw=1, label=look.label)
    ax.yaxis.set_major_locator(LogLocator(subs=(1,)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, columnspacing=1.0)


def _caption(by_role: Mapping[str, Mapping[tuple[float | None, float | None], list[Row]]]) -> str:
    if not by_role:
        return ""
    n = sorted({len(members) for settings in by_role.values() for members in settings.values()})
    count = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    parts = []
    if OURS in by_role:
        for metric, label, _ in MEASURES:
            at, members = min(by_role[OURS].items(), key=lambda item: mean(item[1], metric))
            what = label.split(",")[0]
            parts.append(f"{what} is lowest, {number(mean(members, metric))}, at τf = {at[0]:g}, τb = {at[1]:g}")
    where = f" Of {estimator(OURS).label}, {listing(parts)}." if parts else ""
    return (
        "On an autoencoder small enough to sum over every code, the gradient e that an estimator sends back and the "
        "exact one, g, at the end of training. The factor s gives e the length that brings it nearest to g on average: "
        f"what is left of the bias is a matter of direction (0 is right, 1 is useless).{where} The last panel: every "
        f"setting of every estimator; the lower left corner would be exact. n = {count} seeds per setting."
    )
