"""Where the optimum lies: the map over (tau_f, tau_b), and the sequential searches."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.ticker import LogLocator, NullLocator

from dst_lab.configs import WHOLE, Config
from dst_lab.figures.rows import Array, Row, Rows, setting_key, spread
from dst_lab.figures.style import (
    FAINT,
    HEIGHT,
    INK,
    LOOKS,
    MAP,
    TASKS,
    Drawn,
    absent,
    listing,
    number,
    panels,
    plus_minus,
)
from dst_lab.studies.paper.claims import tasks

PAPER_OPTIMA = {rule.task: rule.optimum for rule in tasks.TASKS}
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


Cells: TypeAlias = Mapping[tuple[float, float], list[Row]]
"""(tau_f, tau_b) -> runs."""
STROKES = (((0, (1, 1.2)), "v", 0.45), ((0, (5, 1.5, 1, 1.5)), "^", 0.6), ((0, (5, 2)), "s", 0.8), ("-", "o", 1.0))
"""(line, marker, alpha) of up to four learning rates: shades of one colour, told apart without it too."""


def cells(rows: Rows, task: str, metric: str) -> dict[tuple[float, float], list[Row]]:
    """(tau_f, tau_b) -> the search's runs there, at one learning rate, that have the metric."""
    return _at((row for row in swept(rows, task) if row.run.status == "done" and row.has(metric)), rate(rows, task))


def diverged(rows: Rows, task: str) -> dict[tuple[float, float], int]:
    """(tau_f, tau_b) -> how many of the search's runs diverged there, at the same learning rate."""
    found = _at((row for row in swept(rows, task) if row.run.status == "diverged"), rate(rows, task))
    return {at: len(there) for at, there in found.items()}


def swept(rows: Rows, task: str) -> list[Row]:
    """The search's runs; before it is done, the sweep of Decoupled ST with most settings that is there, alike in all
    fields but temperatures, learning rate and seed, and with images held out to choose by."""
    found = [*rows.recipe(RECIPE[task], task), *rows.diverged(RECIPE[task], task)]
    if (task, "decoupled") in rows.chosen:
        return found
    sweeps: dict[str, list[Row]] = {"": found}
    for row in rows.runs.values():
        constant = row.run.estimator == "decoupled" and not row.taus.schedule
        held_out = not str(row.run.config["dataset"]).endswith(WHOLE)
        if row.run.task == task and constant and held_out and row.run.status in ("done", "diverged"):
            sweeps.setdefault(setting_key({**row.run.config, "estimator": "", "lr": 0}), []).append(row)
    most = max(sweeps.values(), key=lambda sweep: len({row.taus for row in sweep}))
    return most if most is found or len({row.taus for row in most}) > 1 else []


def rate(rows: Rows, task: str) -> float | None:
    """The learning rate that is drawn: the chosen one; before that, the one with most runs (of equals, the first)."""
    config = rows.chosen.get((task, "decoupled"))
    if config is not None:
        return config.lr
    counts = Counter(float(row.run.config["lr"]) for row in swept(rows, task) if row.run.status == "done")
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
    """Ticks at 1, 2 and 5 of each decade, or at decades alone where more than three are in view; plain numbers, or
    powers of ten where these would be long."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1,) if high / low > 1000 else (1, 2, 5)))
    short = low > 1e-5 and high < 1e6
    axis.set_major_formatter(lambda value, _: f"{value:g}" if short else f"$10^{{{round(math.log10(value))}}}$")
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
    said, seeds = "The search is not done, so that no optimum is marked.", "seeds"
    ours = optimum(rows, task)
    if ours is not None and ours in found:
        seeds = "search seeds"
        losses = np.array([row.best("validation_loss") for row in found[ours]])
        diagonal = [
            float(np.mean([row.best("validation_loss") for row in there])) for (f, b), there in found.items() if f == b
        ]
        where = "on the diagonal" if ours[0] == ours[1] else "off the diagonal"
        said = (
            f"The lowest loss, {plus_minus(losses)}, lies {where} at "
            f"τf = {ours[0]:g}, τb = {ours[1]:g}; the paper's optimum is τf = {PAPER_OPTIMA[task][0]:g}, "
            f"τb = {PAPER_OPTIMA[task][1]:g}."
        )
        if diagonal:
            said += f" The lowest on the grid's own diagonal is {number(min(diagonal))}."
    return (
        f"Brighter is better in all three maps. {said} Each cell is the mean over n = {count} {seeds}"
        f"{_lr(rows, task)}.{_lost(diverged(rows, task), ' (hatched)')}"
    )


def _lr(rows: Rows, task: str) -> str:
    lr = rate(rows, task)
    return "" if lr is None else f" at learning rate {lr:g}"


def _lost(lost: Mapping[tuple[float, float], int], how: str = "") -> str:
    if not lost:
        return ""
    cells = [f"{count} at τf = {f:g}, τb = {b:g}" for (f, b), count in sorted(lost.items())]
    more = [f"the rest at {len(cells) - 5} other settings"] if len(cells) > 5 else []
    return f" Diverged, and in no mean{how}: {listing([*cells[:5], *more])}."


def _search(rows: Rows, task: str, label: str) -> Drawn:
    """A line a learning rate over each temperature; of the autoencoder, also how many seeds converged."""
    missing, ours = rows.missing(RECIPE[task], task), optimum(rows, task)
    by_rate = _by_rate(rows, task)
    counted = bool(by_rate) and task == "categorical-autoencoder"
    heights = (4, len(by_rate) / 4) if counted else (1,)
    figure, axes = panels(2, height=HEIGHT + 0.2 + (0.5 + 0.27 * len(by_rate)) * counted, heights=heights)
    for i, name in enumerate(("tau_f", "tau_b")):
        ax, *below = axes[i * len(heights) : (i + 1) * len(heights)]
        sweeps = {lr: _sweeps(found, ours)[i] for lr, found in by_rate.items()}
        if max(map(len, sweeps.values()), default=0) < 2:
            absent(ax, missing or [f"the sweep of {name}"])
            for counts in below:
                counts.set_axis_off()
            continue
        _losses(ax, sweeps, rows.chosen.get((task, "decoupled")), name, PAPER_OPTIMA[task][i])
        ax.set_ylabel(label)
        for counts in below:
            _counts(counts, sweeps, rows.converged_below)
            counts.sharex(ax)
            ax.tick_params(labelbottom=False)
        last = (ax, *below)[-1]
        last.set_xlabel(rf"$\{name}$")
        drop = (0.14 if below else 0.17) * sum(heights) / heights[-1]
        last.legend(*ax.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -drop), ncols=2)
    caption = _search_caption(rows, task, by_rate, ours, counted) if by_rate else ""
    return Drawn(f"Temperature search, {TASKS[task]}", figure, caption, 2, missing, (RECIPE[task],))


def _by_rate(rows: Rows, task: str) -> dict[float, Cells]:
    """Each learning rate that the search tried, from the lowest -> its runs."""
    found = rows.recipe(RECIPE[task], task, "validation_loss")
    return {lr: _at(found, lr) for lr in sorted({float(row.run.config["lr"]) for row in found})}


def _sweeps(found: Cells, ours: tuple[float, float] | None) -> list[dict[float, list[Row]]]:
    """The runs along tau_f at the search's first tau_b, and along tau_b at the tau_f it then chose."""
    ordered = dict(sorted(found.items()))
    first_b = max({b for _, b in found}, key=lambda b: sum(at[1] == b for at in found), default=None)
    forward = {f: there for (f, b), there in ordered.items() if b == first_b}
    backward = {b: there for (f, b), there in ordered.items() if ours is not None and f == ours[0]}
    return [forward, backward]


def _losses(
    ax: Axes, sweeps: Mapping[float, dict[float, list[Row]]], config: Config | None, name: str, paper: float
) -> None:
    """Darker, and less broken, the higher the rate. Where some runs collapse the seeds lie in two heaps, which a
    standard deviation would not show: of several rates, the seeds of the chosen one are drawn as they are."""
    color = LOOKS["decoupled"].color
    for (lr, across), (line, marker, alpha) in zip(sweeps.items(), STROKES[-len(sweeps) :], strict=True):
        losses = [np.array([row.best("validation_loss") for row in there]) for there in across.values()]
        means = [float(values.mean()) for values in losses]
        if len(sweeps) == 1:
            bars = [float(spread(values)) for values in losses]
            ax.errorbar(list(across), means, bars, color=color, marker=marker, capsize=2.5)
            continue
        ax.plot(list(across), means, color=color, ls=line, marker=marker, alpha=alpha, label=f"rate {lr:g}")
    chosen = {} if config is None else sweeps.get(config.lr, {})
    seeds = [(tau, row.best("validation_loss")) for tau, there in chosen.items() for row in there]
    if config is not None and seeds and len(sweeps) > 1:
        ax.plot(*zip(*seeds, strict=True), ".", color=INK, ms=2.5, label=f"seeds at rate {config.lr:g}")
    ax.axvline(paper, color=FAINT, ls=(0, (4, 2)), lw=1.2, label=f"the paper's optimum, {paper:g}")
    tau = None if config is None else float(config.estimator.to_dict()[name])
    if tau in chosen:
        mean = float(np.mean([loss for at, loss in seeds if at == tau]))
        ax.plot(tau, mean, "*", ms=14, mfc=color, mec=INK, ls="none", label=f"chosen, {tau:g}")


def _counts(ax: Axes, sweeps: Mapping[float, dict[float, list[Row]]], below: float) -> None:
    """How many runs ended with a validation loss below this, a row of numbers a rate."""
    for y, across in enumerate(sweeps.values()):
        for tau, there in across.items():
            count = sum(row.last("validation_loss") < below for row in there)
            ax.text(tau, y, str(count), ha="center", va="center", size=7)
    ax.margins(x=0.03)
    ax.set(ylim=(-0.6, len(sweeps) - 0.4))
    ax.set_yticks(range(len(sweeps)), [f"{lr:g}" for lr in sweeps])
    n = len({row.run.seed for across in sweeps.values() for there in across.values() for row in there})
    ax.set_title(f"seeds of {n} that converged, by learning rate", fontsize=9, fontweight="normal")
    ax.tick_params(axis="y", length=0)
    ax.grid(False)
    ax.spines["left"].set_visible(False)


def _search_caption(
    rows: Rows, task: str, by_rate: Mapping[float, Cells], ours: tuple[float, float] | None, counted: bool
) -> str:
    n = sorted({len(there) for found in by_rate.values() for there in found.values()})
    several, lr, lost = len(by_rate) > 1, rate(rows, task), rows.diverged(RECIPE[task], task)
    chosen = "The search is not done." if ours is None else (
        f"First τf is swept, then τb at the best τf{f', both at {len(by_rate)} learning rates' * several}: the search "
        f"ends at τf = {ours[0]:g}, τb = {ours[1]:g}{f', learning rate {lr:g}' * several} (the paper's at "
        f"{PAPER_OPTIMA[task][0]:g}, {PAPER_OPTIMA[task][1]:g})."
    )  # fmt: skip
    count = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    where = ", one line a learning rate" if several else _lr(rows, task)
    bars = "; bars: one standard deviation" if not several else "; dots: the seeds at the chosen rate" * bool(ours)
    said = f"{chosen} Points: mean over n = {count} search seeds{where}{bars}."
    if counted:
        said += _converged(by_rate, rows.converged_below, lost)
    return said + _lost(Counter((f, b) for f, b, _ in (row.taus for row in lost) if f is not None and b is not None))


def _converged(by_rate: Mapping[float, Cells], below: float, diverged: list[Row]) -> str:
    parts = []
    for lr, found in by_rate.items():
        ends = [row.last("validation_loss") for there in found.values() for row in there]
        n = len(ends) + sum(row.run.config["lr"] == lr for row in diverged)
        parts.append(f"{sum(end < below for end in ends)} of {n} at {lr:g}")
    return (
        f" Numbers: the seeds that converged, as claim C2 has it, with a last validation loss below {below:.4g} nats; "
        f"runs in all: {listing(parts)}."
    )
