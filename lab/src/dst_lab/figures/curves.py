"""Training curves of chosen settings, and what captions say of such settings."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dst_lab.cards import MetricCard, metric, title
from dst_lab.figures.style import HEIGHT, Drawn, absent, listing, panels, plus_minus, settings_text
from dst_lab.records import Array, Rows, Setting, spread, together, uneven

SETTLING = 0.1
"""The share of training that the vertical axis may leave out."""
NARROW, LINE = 34, 0.18
"""Labels of at most so many characters stand side by side, others one below the other; a line's inches."""


def curves(rows: Rows, task: str, roles: Sequence[str], metrics: Sequence[str]) -> Drawn:
    """A study's chosen settings on one task, one panel per metric."""
    settings = settled(rows, task, roles, metrics)
    missing = unsettled(rows, task, roles, settings)
    figure = draw(settings, task, metrics, missing)
    text = caption(settings, metric(metrics[0], task)) + held(settings, metrics) + lost(rows, task, roles)
    return Drawn(heading(task), figure, text, len(metrics), missing, recipes_of(rows, task, roles))


def heading(task: str) -> str:
    return f"Training curves, {title(task)}"


def draw(settings: Mapping[str, Setting], task: str, metrics: Sequence[str], missing: Sequence[str] = ()) -> Figure:
    """Mean and band of each setting whose runs have the metric, one panel per metric; an empty panel says what is
    missing."""
    labels = {
        role: f"{one.look.label} {settings_text(one.config['estimator'])}".strip() for role, one in settings.items()
    }
    columns = 2 if all(len(_plain(label)) <= NARROW for label in labels.values()) else 1
    lines = len(labels) if columns == 1 else 0
    figure, axes = panels(len(metrics), height=HEIGHT + 0.45 + LINE * max(0, lines - 2))
    for ax, name in zip(axes, metrics, strict=True):
        drawn = having(settings, name)
        if not drawn:
            absent(ax, missing)
            continue
        card = metric(name, task)
        unit = "epoch" if all("epochs" in setting.config for setting in drawn.values()) else "step"
        for role, setting in drawn.items():
            _curve(ax, setting, card, labels[role])
        ax.set(xlabel=unit, ylabel=card.axis)
        if ax.dataLim.x1 > 10_000:
            ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}")
            ax.set_xlabel(f"thousand {unit}s")
        frame(ax, [card.factor * together(s.rows, name)[1] for s in drawn.values()])
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.19), ncols=columns, columnspacing=1.0)
    return figure


def having(settings: Mapping[str, Setting], name: str) -> dict[str, Setting]:
    """The settings whose runs all have the metric."""
    return {role: one for role, one in settings.items() if one.n and all(row.has(name) for row in one.rows)}


def settled(rows: Rows, task: str, roles: Iterable[str], metrics: Sequence[str]) -> dict[str, Setting]:
    """The chosen settings whose runs have what is shown."""
    chosen = rows.settings(task, roles)
    return {role: s for role, s in chosen.items() if all(row.has(name) for row in s.rows for name in metrics)}


def unsettled(rows: Rows, task: str, roles: Sequence[str], settings: Mapping[str, Setting]) -> list[str]:
    """What is missing for the roles that are not drawn and did not diverge altogether."""
    known = {role: setting for role in roles if (setting := rows.setting(task, role))}
    if all(role in settings or (role in known and not known[role].n and known[role].diverged) for role in roles):
        return []
    searches = searches_of(rows, task, roles)
    missing = [text for recipe in searches for text in rows.missing(recipe, task)]
    return missing or [f"the rest of {listing(searches)}"]


def searches_of(rows: Rows, task: str, roles: Iterable[str]) -> list[str]:
    """The recipes that search for these roles on a task."""
    searches = (rows.searches.get((task, role)) for role in roles)
    return list(dict.fromkeys(search[0] for search in searches if search))


def recipes_of(rows: Rows, task: str, roles: Iterable[str]) -> tuple[str, ...]:
    """The recipes whose runs are drawn where the chosen settings of these roles are."""
    return (*searches_of(rows, task, roles), *filter(None, [rows.recipes.confirm]))


def _curve(ax: Axes, setting: Setting, card: MetricCard, label: str) -> None:
    look, (x, values) = setting.look, together(setting.rows, card.name)
    values = card.factor * values
    mark: dict[str, Any] = {"marker": look.marker, "markevery": max(1, len(x) // 6)}
    mean, width = values.mean(0), spread(values)
    ax.fill_between(x, mean - width, mean + width, color=look.color, alpha=0.18, lw=0)
    ax.plot(x, mean, color=look.color, ls=look.line, label=label, **mark)


def _plain(label: str) -> str:
    """A label as long as it looks: a Greek letter with its index counts as two characters."""
    return re.sub(r"\$\\[a-z]+(_.)?\$", "ab", label)


def frame(ax: Axes, groups: list[Array]) -> None:
    """Limits that hold everything after the first tenth of training, so that what differs at the end can be seen."""
    late = [values[:, int(SETTLING * values.shape[1]) :] for values in groups]
    finite = np.concatenate([part[np.isfinite(part)] for part in late])
    ax.set_xlim(left=0)
    if not finite.size:  # a metric that was never a number leaves an empty frame
        return
    low, high = float(finite.min()), float(finite.max())
    pad = 0.06 * (high - low) or 0.5
    ax.set_ylim(low - pad, high + pad)


def caption(
    settings: Mapping[str, Setting],
    card: MetricCard,
    how: str = "Line: mean over seeds; band: one standard deviation",
    where: str = "at the settings the searches chose",
) -> str:
    """The last value of each setting, the best first, and over how many seeds."""
    if not settings:
        return ""
    ends = {}
    for role, setting in settings.items():
        last = card.factor * setting.values(card.name, "last")
        ends[role] = (float(last.mean()), plus_minus(last))
    order = sorted(ends, key=lambda role: -(card.direction or -1) * ends[role][0])
    listed = listing([f"{settings[role].look.label} {ends[role][1]}" for role in order])
    return (
        f"At the end of training, {card.label} (mean ± standard deviation), {card.good_end or 'lowest'} first: "
        f"{listed}. {how}; {counted(settings)}, {where}. The first tenth of training may lie outside the frame."
    )


def counted(settings: Mapping[str, Setting]) -> str:
    """For a caption: the number and kind of seeds of most settings, and the settings with another number or kind."""
    if not settings:
        return "n = 0"
    (((n, seeds), _),) = Counter((setting.n, setting.seeds) for setting in settings.values()).most_common(1)
    left = [one for one in settings.values() if (one.n, one.seeds) != (n, seeds)]
    others = [f"{one.look.label} {one.n} {one.seeds}".rstrip() for one in left]
    kind = f"{seeds} seed".strip() + "s" * (n != 1)
    return f"n = {n} {kind} each" + (f"; {listing(others)} seed{'s' * (left[-1].n != 1)}" if left else "")


def held(settings: Mapping[str, Setting], metrics: Iterable[str]) -> str:
    """For a caption: what a run counts as after its end, where others of its setting were trained for longer."""
    if not any(uneven(one.rows, name) for name in metrics for one in having(settings, name).values()):
        return ""
    return " A run that ended before others of its setting is drawn with its last value from there on."


def lost(rows: Rows, task: str, roles: Iterable[str]) -> str:
    """For a caption: how many runs of each chosen setting diverged."""
    return diverged({role: setting for role in roles if (setting := rows.setting(task, role))})


def diverged(settings: Mapping[str, Setting]) -> str:
    """For a caption: how many runs of each of these settings diverged."""
    counts = [f"{s.look.label} {s.diverged} of {s.n + s.diverged}" for s in settings.values() if s.diverged]
    return f" Diverged, and not drawn: {listing(counts)}." if counts else ""
