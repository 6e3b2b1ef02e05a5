"""Where the optimum lies: the map over (tau_f, tau_b), and the sequential searches."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.ticker import LogLocator, NullLocator

from dst_lab.figures.rows import Array, Row, Rows, spread
from dst_lab.figures.style import FAINT, HEIGHT, INK, LOOKS, MAP, TASKS, Drawn, absent, listing, number, panels

PAPER_OPTIMA = {"stochastic-binary": (0.1, 0.7), "categorical-autoencoder": (2.0, 0.5), "logic-gates": (0.1, 2.0)}
RECIPE = {
    "stochastic-binary": "sbn-grid",
    "categorical-autoencoder": "catae-sequential",
    "logic-gates": "logic-sequential",
}
DARK, LIGHT = "#000000", "#fefefe"
"""On the map itself, whatever the page: unlike style.INK and style.PAPER, never replaced."""
SHOWN = (
    ("validation_loss", "lowest validation loss (nats)", 1.0),
    ("validation_accuracy", "highest validation accuracy (%)", 100.0),
    ("inactive", "inactive neurons at the end (%)", 100.0),
)


def cells(rows: Rows, task: str, metric: str) -> dict[tuple[float, float], list[Row]]:
    """(tau_f, tau_b) -> the search's runs there, at one learning rate, that have the metric."""
    return _at(rows.recipe(RECIPE[task], task, metric), rate(rows, task))


def diverged(rows: Rows, task: str) -> dict[tuple[float, float], int]:
    """(tau_f, tau_b) -> how many of the search's runs diverged there, at the same learning rate."""
    found = _at(rows.diverged(RECIPE[task], task), rate(rows, task))
    return {at: len(there) for at, there in found.items()}


def rate(rows: Rows, task: str) -> float | None:
    """The learning rate that is drawn: the chosen one; before that, the one with most runs (of equals, the first)."""
    config = rows.chosen.get((task, "decoupled"))
    if config is not None:
        return config.lr
    counts = Counter(float(row.run.config["lr"]) for row in rows.recipe(RECIPE[task], task))
    return max(counts, key=lambda lr: counts[lr], default=None)


def _at(found: Iterable[Row], lr: float | None) -> dict[tuple[float, float], list[Row]]:
    there: dict[tuple[float, float], list[Row]] = {}
    for row in found:
        tau_f, tau_b, _ = row.taus
        if tau_f is not None and tau_b is not None and row.run.config["lr"] == lr:
            there.setdefault((tau_f, tau_b), []).append(row)
    return there


def optimum(rows: Rows, task: str) -> tuple[float, float] | None:
    """What the search chose."""
    config = rows.chosen.get((task, "decoupled"))
    if config is None:
        return None
    taus = config.estimator.to_dict()
    return float(taus["tau_f"]), float(taus["tau_b"])


def network(rows: Rows) -> Drawn:
    """Binary network: loss, accuracy and inactive neurons over the grid."""
    task = "stochastic-binary"
    missing, lost = rows.missing(RECIPE[task], task), diverged(rows, task)
    figure, axes = panels(len(SHOWN), height=HEIGHT + 0.3)
    for ax, (metric, label, factor) in zip(axes, SHOWN, strict=True):
        found = cells(rows, task, metric)
        if not found:
            absent(ax, missing)
            continue
        means = {at: factor * float(np.mean([row.best(metric) for row in there])) for at, there in found.items()}
        heat_map(ax, means, label, bright_is_low=metric != "validation_accuracy", lost=lost)
        _marks(ax, {**means, **lost}, optimum(rows, task), PAPER_OPTIMA[task])
    return Drawn("Temperature map, binary network", figure, _caption(rows, task), len(SHOWN), missing, (RECIPE[task],))


def autoencoder_search(rows: Rows) -> Drawn:
    return _search(rows, "categorical-autoencoder", "lowest validation loss (nats an image)")


def logic_search(rows: Rows) -> Drawn:
    return _search(rows, "logic-gates", "lowest validation loss (nats)")


def heat_map(
    ax: Axes,
    means: Mapping[tuple[float, float], float],
    label: str,
    bright_is_low: bool,
    log: bool = False,
    lost: Iterable[tuple[float, float]] = (),
) -> None:
    """Equal cells, one a setting: the grid's steps are not all equal, and an even map is easier to read. `lost` cells
    are hatched."""
    tau_f, tau_b = _axes([*means, *lost])
    values = np.full((len(tau_b), len(tau_f)), np.nan)
    for (f, b), mean in means.items():
        values[tau_b.index(b), tau_f.index(f)] = mean
    mesh = ax.pcolormesh(values, cmap=MAP + "_r" if bright_is_low else MAP, norm="log" if log else "linear")
    bar = ax.figure.colorbar(mesh, ax=ax, label=label, pad=0.02)
    bar.outline.set_visible(False)
    if log:
        plain_logarithm(bar.ax.yaxis)
    for f, b in lost:
        _hatch(ax, tau_f.index(f), tau_b.index(b))
    for axis, taus in ((ax.xaxis, tau_f), (ax.yaxis, tau_b)):
        every = max(1, round(len(taus) / 7))
        axis.set_ticks(np.arange(len(taus))[::every] + 0.5, [f"{tau:g}" for tau in taus[::every]])
        axis.set_tick_params(length=0)
    ax.set(xlabel=r"$\tau_f$ (draws the choice)", ylabel=r"$\tau_b$ (carries the gradient)")
    ax.grid(False)
    ax.spines[:].set_visible(False)


def _hatch(ax: Axes, x: int, y: int) -> None:
    """Strokes that are seen on every colour: light ones on dark ones."""
    ends = (((0, 0.5), (0.5, 1)), ((0, 0), (1, 1)), ((0.5, 0), (1, 0.5)))
    strokes = [np.add(pair, (x, y)) for pair in ends]
    for color, width in ((DARK, 2.0), (LIGHT, 0.9)):
        ax.add_collection(LineCollection(strokes, colors=color, linewidths=width, capstyle="butt"))


def plain_logarithm(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of each decade, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def diagonal(ax: Axes, settings: Iterable[tuple[float, float]]) -> None:
    """Where both temperatures are equal."""
    tau_f, tau_b = _axes(settings)
    both = np.linspace(max(tau_f[0], tau_b[0]), min(tau_f[-1], tau_b[-1]), 200)
    x, y = _place(both, tau_f), _place(both, tau_b)
    ax.plot(x, y, color=DARK, lw=2.4)
    ax.plot(x, y, color=LIGHT, lw=1.2, ls=(0, (4, 2)), label=r"$\tau_f = \tau_b$")


def _axes(settings: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    pairs = list(settings)
    return sorted({f for f, _ in pairs}), sorted({b for _, b in pairs})


def _place(tau: Array | float, taus: list[float]) -> Array:
    """From temperatures to the map's own units, straight between cells."""
    return np.interp(tau, taus, np.arange(len(taus)) + 0.5)


def _marks(
    ax: Axes, settings: Iterable[tuple[float, float]], ours: tuple[float, float] | None, paper: tuple[float, float]
) -> None:
    pairs = list(settings)
    tau_f, tau_b = _axes(pairs)
    diagonal(ax, pairs)
    edge: dict[str, Any] = {"markeredgecolor": DARK, "ls": "none", "clip_on": False}
    ax.plot(_place(paper[0], tau_f), _place(paper[1], tau_b), "o", ms=12, mfc="none", mew=3.4, **edge)
    ax.plot(
        _place(paper[0], tau_f),
        _place(paper[1], tau_b),
        "o",
        ms=12,
        mfc="none",
        mec=LIGHT,
        mew=1.6,
        ls="none",
        label="the paper's optimum",
    )
    if ours is not None:
        ax.plot(
            _place(ours[0], tau_f), _place(ours[1], tau_b), "*", ms=10, mfc=LIGHT, mew=0.9, label="our optimum", **edge
        )
    legend = ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=1.0)
    for handle in filter(None, legend.legend_handles):  # light marks would not be seen beside the map
        handle.set(color=INK, markeredgecolor=INK, markerfacecolor="none")


def _caption(rows: Rows, task: str) -> str:
    found = cells(rows, task, "validation_loss")
    if not found:
        return ""
    n = sorted({len(there) for there in found.values()})
    count = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    said = "The search is not done, so that no optimum is marked."
    ours = optimum(rows, task)
    if ours is not None and ours in found:
        losses = np.array([row.best("validation_loss") for row in found[ours]])
        diagonal = [
            float(np.mean([row.best("validation_loss") for row in there])) for (f, b), there in found.items() if f == b
        ]
        where = "on the diagonal" if ours[0] == ours[1] else "off the diagonal"
        said = (
            f"The lowest loss, {number(float(losses.mean()))} ± {number(float(spread(losses)), 2)}, lies {where} at "
            f"τf = {ours[0]:g}, τb = {ours[1]:g}; the paper's optimum is τf = {PAPER_OPTIMA[task][0]:g}, "
            f"τb = {PAPER_OPTIMA[task][1]:g}."
        )
        if diagonal:
            said += f" The lowest on the grid's own diagonal is {number(min(diagonal))}."
    return (
        f"Brighter is better in all three maps. {said} Each cell is the mean over n = {count} search seeds"
        f"{_lr(rows, task)}.{_lost(rows, task, ' (hatched)')}"
    )


def _lr(rows: Rows, task: str) -> str:
    lr = rate(rows, task)
    return "" if lr is None else f" at learning rate {lr:g}"


def _lost(rows: Rows, task: str, how: str = "") -> str:
    lost = diverged(rows, task)
    if not lost:
        return ""
    cells = [f"{count} at τf = {f:g}, τb = {b:g}" for (f, b), count in sorted(lost.items())]
    more = [f"the rest at {len(cells) - 5} other settings"] if len(cells) > 5 else []
    return f" Diverged, and in no mean{how}: {listing([*cells[:5], *more])}."


def _search(rows: Rows, task: str, label: str) -> Drawn:
    missing = rows.missing(RECIPE[task], task)
    found, ours = cells(rows, task, "validation_loss"), optimum(rows, task)
    figure, axes = panels(2, height=HEIGHT + 0.2)
    for i, (ax, across, name) in enumerate(zip(axes, _sweeps(found, ours), ("tau_f", "tau_b"), strict=True)):
        if len(across) < 2:
            absent(ax, missing or [f"the sweep of {name}"])
            continue
        means = {tau: float(values.mean()) for tau, values in across.items()}
        bars = [float(spread(values)) for values in across.values()]
        look, paper = LOOKS["decoupled"], PAPER_OPTIMA[task][i]
        ax.errorbar(list(means), list(means.values()), bars, color=look.color, marker=look.marker, capsize=2.5)
        ax.axvline(paper, color=FAINT, ls=(0, (4, 2)), lw=1.2, label=f"the paper's optimum, {paper:g}")
        if ours is not None and ours[i] in means:
            star: dict[str, Any] = {
                "ms": 14,
                "mfc": look.color,
                "mec": INK,
                "ls": "none",
                "label": f"chosen, {ours[i]:g}",
            }
            ax.plot(ours[i], means[ours[i]], "*", **star)
        ax.set(xlabel=rf"$\{name}$", ylabel=label)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    return Drawn(
        f"Temperature search, {TASKS[task]}",
        figure,
        _search_caption(rows, task, found, ours),
        2,
        missing,
        (RECIPE[task],),
    )


def _sweeps(
    found: Mapping[tuple[float, float], list[Row]], ours: tuple[float, float] | None
) -> list[dict[float, Array]]:
    """The losses along tau_f at the search's first tau_b, and along tau_b at the tau_f it then chose."""
    losses = {at: np.array([row.best("validation_loss") for row in rows]) for at, rows in sorted(found.items())}
    first_b = max({b for _, b in found}, key=lambda b: sum(at[1] == b for at in found), default=None)
    forward = {f: values for (f, b), values in losses.items() if b == first_b}
    backward = {b: values for (f, b), values in losses.items() if ours is not None and f == ours[0]}
    return [forward, backward]


def _search_caption(
    rows: Rows, task: str, found: Mapping[tuple[float, float], list[Row]], ours: tuple[float, float] | None
) -> str:
    if not found:
        return ""
    n = sorted({len(there) for there in found.values()})
    chosen = "The search is not done." if ours is None else (
        f"First τf is swept, then τb at the best τf: the search ends at τf = {ours[0]:g}, τb = {ours[1]:g} (the "
        f"paper's at {PAPER_OPTIMA[task][0]:g}, {PAPER_OPTIMA[task][1]:g})."
    )  # fmt: skip
    count = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    return (
        f"{chosen} Points: mean over n = {count} search seeds{_lr(rows, task)}; bars: one standard deviation."
        f"{_lost(rows, task)}"
    )
