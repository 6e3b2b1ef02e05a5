"""Training curves of the chosen settings, one figure a task."""

from collections import Counter
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dst_lab.figures.rows import Array, Rows, Setting, spread, together
from dst_lab.figures.style import HEIGHT, LOOKS, TASKS, WIDTH, Drawn, absent, listing, panels, plus_minus, settings_text

ROLES = ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")
SEARCHES = {
    "stochastic-binary": ("sbn-grid", "sbn-baselines"),
    "categorical-autoencoder": ("catae-sequential", "catae-baselines"),
    "logic-gates": ("logic-sequential", "logic-baselines"),
}
EVERY_SEED = (("validation_loss", "validation loss (nats)", 1.0), ("perplexity", "perplexity of the codes", 1.0))
SETTLING = 0.1
"""The share of training that the vertical axis may leave out."""


def network(rows: Rows) -> Drawn:
    """Binary network: loss and accuracy on validation data."""
    shown = (("validation_loss", "validation loss (nats)", 1), ("validation_accuracy", "validation accuracy (%)", 100))
    return _draw(rows, "stochastic-binary", ROLES, shown, "epoch")


def autoencoder(rows: Rows) -> Drawn:
    """Autoencoder: loss and use of the codes, one panel an estimator, every seed a line of its own."""
    task = "categorical-autoencoder"
    settings = _settled(rows, task, ROLES, EVERY_SEED)
    missing = _unsettled(rows, task, ROLES, settings)
    figure, axes = panels(len(settings) or 1, width=2.7 if settings else WIDTH, height=4.3, heights=(1, 1))
    if not settings:
        for ax in axes:
            absent(ax, missing)
    for i, (role, setting) in enumerate(settings.items()):
        look = LOOKS[role]
        top = axes[2 * i]
        taus = settings_text(setting.config.estimator.to_dict())
        below = ", ".join(filter(None, (taus, f"rate {setting.config.lr:g}")))
        top.set_title(f"{look.label}\n{below}", fontsize=9, fontweight="normal")
        for ax, (metric, label, factor) in zip(axes[2 * i : 2 * i + 2], EVERY_SEED, strict=True):
            x, values = together(setting.rows, metric)
            ax.plot(x, factor * values.T, color=look.color, lw=1.0, alpha=0.75)
            ax.set_ylabel(label)
            _frame(ax, [factor * together(s.rows, metric)[1] for s in settings.values()])
        axes[2 * i + 1].set_xlabel("epoch")
    caption = _caption(settings, EVERY_SEED[0], every_seed=True) if settings else ""
    caption += _converged(settings, rows.converged_below) + lost(rows, task, ROLES)
    return Drawn(f"Training curves, {TASKS[task]}", figure, caption, len(settings) or 1, missing,
                 (*SEARCHES[task], "confirm"))  # fmt: skip


def logic(rows: Rows) -> Drawn:
    """Logic gates: training loss and validation accuracy, with the soft original beside the four."""
    shown = (("train_loss", "training loss (nats)", 1), ("validation_accuracy", "validation accuracy (%)", 100))
    return _draw(rows, "logic-gates", (*ROLES, "soft"), shown, "step")


def _draw(
    rows: Rows,
    task: str,
    roles: tuple[str, ...],
    shown: tuple[tuple[str, str, float], ...],
    unit: str,
) -> Drawn:
    settings = _settled(rows, task, roles, shown)
    missing = _unsettled(rows, task, roles, settings)
    figure, axes = panels(len(shown), height=HEIGHT + 0.45)
    title = f"Training curves, {TASKS[task]}"
    for ax, (metric, label, factor) in zip(axes, shown, strict=True):
        if not settings:
            absent(ax, missing)
            continue
        for role, setting in settings.items():
            _curve(ax, role, setting, metric, factor)
        ax.set(xlabel=unit, ylabel=label)
        if ax.dataLim.x1 > 10_000:
            ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}")
            ax.set_xlabel(f"thousand {unit}s")
        _frame(ax, [factor * together(s.rows, metric)[1] for s in settings.values()])
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.19), ncols=2, columnspacing=1.0)
    caption = (_caption(settings, shown[0]) if settings else "") + lost(rows, task, roles)
    return Drawn(title, figure, caption, len(shown), missing, (*SEARCHES[task], "confirm"))


def _settled(
    rows: Rows, task: str, roles: tuple[str, ...], shown: tuple[tuple[str, str, float], ...]
) -> dict[str, Setting]:
    """The chosen settings whose runs have what is shown."""
    found = {role: setting for role in roles if (setting := rows.setting(task, role)) and setting.n}
    metrics = [metric for metric, _, _ in shown]
    return {role: s for role, s in found.items() if all(row.has(metric) for row in s.rows for metric in metrics)}


def _curve(ax: Axes, role: str, setting: Setting, metric: str, factor: float) -> None:
    look, (x, values) = LOOKS[role], together(setting.rows, metric)
    values = factor * values
    label = f"{look.label} {settings_text(setting.config.estimator.to_dict())}".strip()
    mark: dict[str, Any] = {"marker": look.marker, "markevery": max(1, len(x) // 6)}
    mean, width = values.mean(0), spread(values)
    ax.fill_between(x, mean - width, mean + width, color=look.color, alpha=0.18, lw=0)
    ax.plot(x, mean, color=look.color, ls=look.line, label=label, **mark)


def _frame(ax: Axes, groups: list[Array]) -> None:
    """Limits that hold everything after the first tenth of training, so that what differs at the end can be seen."""
    late = [values[:, int(SETTLING * values.shape[1]) :] for values in groups]
    finite = np.concatenate([part[np.isfinite(part)] for part in late])
    low, high = float(finite.min()), float(finite.max())
    pad = 0.06 * (high - low) or 0.5
    ax.set_ylim(low - pad, high + pad)
    ax.set_xlim(left=0)


def _caption(settings: dict[str, Setting], first: tuple[str, str, float], every_seed: bool = False) -> str:
    metric, label, factor = first
    ends = {}
    for role, setting in settings.items():
        last = factor * np.array([row.last(metric) for row in setting.rows])
        ends[role] = (float(last.mean()), plus_minus(last))
    order = sorted(ends, key=lambda role: ends[role][0])
    said = listing([f"{LOOKS[role].label} {ends[role][1]}" for role in order])
    how = "Each line is one seed" if every_seed else "Line: mean over seeds; band: one standard deviation"
    return (
        f"At the end of training, {label.split(' (')[0]} (mean ± standard deviation), lowest first: {said}. {how}; "
        f"{counted(settings)}, at the settings the searches chose. The first tenth of training may lie outside the "
        "frame."
    )


def _converged(settings: dict[str, Setting], below: float) -> str:
    """For a caption: how many runs of each converged, and to what; a mean over all is of neither kind."""
    said = []
    for role, setting in settings.items():
        ends = np.array([loss for row in setting.rows if (loss := row.last("validation_loss")) < below])
        value = f" ({plus_minus(ends)})" if len(ends) else ""
        said.append(f"{LOOKS[role].label} {len(ends)} of {setting.n + setting.diverged}{value}")
    how = f"as claim C2 has it, with a last validation loss below {below:.4g} nats"
    return f" Converged, {how}: {listing(said)}." if said else ""


def counted(settings: dict[str, Setting]) -> str:
    """For a caption: over how many seeds of which kind most settings are, and those that are not."""
    if not settings:
        return "n = 0"
    (((n, seeds), _),) = Counter((setting.n, setting.seeds) for setting in settings.values()).most_common(1)
    others = [f"{LOOKS[role].label} {s.n} {s.seeds}" for role, s in settings.items() if (s.n, s.seeds) != (n, seeds)]
    return f"n = {n} {seeds} seeds each" + f"; {listing(others)} seeds" * bool(others)


def lost(rows: Rows, task: str, roles: tuple[str, ...]) -> str:
    """For a caption: how many runs of each chosen setting diverged."""
    found = {role: setting for role in roles if (setting := rows.setting(task, role)) and setting.diverged}
    said = [f"{LOOKS[role].label} {s.diverged} of {s.n + s.diverged}" for role, s in found.items()]
    return f" Diverged, and not drawn: {listing(said)}." if said else ""


def _unsettled(rows: Rows, task: str, roles: tuple[str, ...], settings: dict[str, Setting]) -> list[str]:
    """What is missing for the roles that are not drawn and did not diverge altogether."""
    known = {role: setting for role in roles if (setting := rows.setting(task, role))}
    if all(role in settings or (role in known and not known[role].n and known[role].diverged) for role in roles):
        return []
    found = [text for recipe in SEARCHES[task] for text in rows.missing(recipe, task)]
    return found or [f"the rest of {listing(SEARCHES[task])}"]
