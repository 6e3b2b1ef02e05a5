"""Every seed of the chosen settings as a dot: one panel per task, one line per estimator."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from dst_lab.cards import MetricCard, metric, title
from dst_lab.figures.curves import counted, recipes_of, unsettled
from dst_lab.figures.style import FAINT, INK, Drawn, absent, panels, plus_minus, safe
from dst_lab.records import Array, Rows, Setting

FAR = 1.5
"""An estimator whose every seed lies farther from the others than this many ranges of theirs is written at the edge:
drawn to scale it would hide how the others differ."""


def seeds(rows: Rows, metrics: Mapping[str, str], roles: Sequence[str]) -> Drawn:
    """One panel per task in its metric, at the end of training or the best, as the metric's card says."""
    figure, axes = panels(len(metrics), width=3.9, height=2.4)
    missing: list[str] = []
    parts = []
    for ax, (task, name) in zip(axes, metrics.items(), strict=True):
        card = metric(name, task)
        chosen = rows.settings(task, roles)
        settings = {role: s for role, s in chosen.items() if all(row.has(name) for row in s.rows)}
        lacking = unsettled(rows, task, roles, settings)
        missing += lacking
        if not settings:
            absent(ax, lacking)
            continue
        _panel(ax, settings, card)
        ax.set_title(title(task)[:1].upper() + title(task)[1:])
        parts.append(f"{title(task)}, {card.summary}, {counted(settings)}")
    caption = f"A dot is a seed, the bar their mean: {'; '.join(parts)}." if parts else ""
    used = {name for task in metrics for name in recipes_of(rows, task, roles)}
    recipes = tuple(name for name in rows.recipes.plans if name in used)  # what confirms after all that search
    return Drawn("Every seed at the chosen settings", figure, caption, len(metrics), missing, recipes)


def _panel(ax: Axes, settings: Mapping[str, Setting], card: MetricCard) -> None:
    values = {role: card.factor * setting.values(card.name) for role, setting in settings.items()}
    outside = far(values)
    inside = np.concatenate([points for role, points in values.items() if role not in outside])
    low, high = float(inside.min()), float(inside.max())
    pad = 0.06 * (high - low) or 0.5
    for line, (role, setting) in enumerate(settings.items()):
        look, points = setting.look, values[role]
        if role in outside:
            right = bool(points.mean() > high)
            text = f"{plus_minus(points)} →" if right else f"← {plus_minus(points)}"
            ax.text(high if right else low, line, text, color=look.color, va="center", ha="right" if right else "left")
            continue
        # Dots that would lie on one another are moved apart, in the order of the seeds.
        offset = 0.22 * np.linspace(-1, 1, len(points)) if len(points) > 1 else np.zeros(1)
        ax.plot(points, line + offset, look.marker, color=look.color, ms=4, alpha=0.75, ls="none", mew=0)
        ax.plot([points.mean()] * 2, [line - 0.34, line + 0.34], color=INK, lw=1.6)
    ax.set(xlim=(low - pad, high + pad), ylim=(len(settings) - 0.5, -0.5), xlabel=card.summary)
    ax.set_yticks(range(len(settings)), [safe(setting.look.label) for setting in settings.values()])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)


def far(values: Mapping[str, Array]) -> list[str]:
    """The settings whose every value lies far outside the range of all other settings."""
    outside = []
    for role, own in values.items():
        others = [other for name, other in values.items() if name != role]
        if not others:
            continue
        rest = np.concatenate(others)
        low, high = float(rest.min()), float(rest.max())
        gap = max(low - float(own.max()), float(own.min()) - high)
        if high > low and gap > FAR * (high - low):
            outside.append(role)
    return outside if len(outside) < len(values) - 1 else []
