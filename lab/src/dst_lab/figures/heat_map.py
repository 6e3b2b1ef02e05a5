"""A map over both temperatures: equal cells, marks on it, logarithmic scales in plain numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from dst_lab.figures.style import INK, MAP, plain_logarithm
from dst_lab.records import Array

DARK, LIGHT = "#000000", "#fefefe"
"""On the map itself, whatever the page: unlike style.INK and style.PAPER, never replaced."""

LINE = 42
"""The characters of labels that fit below a map, side by side."""


class Mark(NamedTuple):
    """A setting to be seen on the map."""

    at: tuple[float, float]
    label: str
    chosen: bool = True
    """A star for what a search chose, a ring for what others report."""


def fence(values: Iterable[float], direction: int) -> float | None:
    """The value at which colours end on the worse side, so that those near the best can be distinguished: 1.5
    interquartile ranges beyond the worse quartile, the usual mark of an outlier.

    None where nothing lies beyond it, where the quartiles are equal, and for a metric (direction 0) that has no worse
    side.
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    if not direction or not finite.size:
        return None
    low, high = np.quantile(finite, (0.25, 0.75))
    end = float(high + 1.5 * (high - low)) if direction < 0 else float(low - 1.5 * (high - low))
    beyond = finite > end if direction < 0 else finite < end
    return end if high > low and beyond.any() else None


def equal_cells(
    ax: Axes, values: Array, label: str, bright_is_low: bool, log: bool = False, end: float | None = None
) -> None:
    """Cells of equal size, with a colour bar. What is worse than `end` has the colour of `end`, and the bar a point
    there."""
    limits: dict[str, Any] = {} if end is None else {"vmax" if bright_is_low else "vmin": end}
    mesh = ax.pcolormesh(values, cmap=MAP + "_r" if bright_is_low else MAP, norm="log" if log else "linear", **limits)
    extend = "neither" if end is None else "max" if bright_is_low else "min"
    bar = ax.figure.colorbar(mesh, ax=ax, label=label, pad=0.02, extend=extend, extendfrac=0.03)
    bar.outline.set_visible(False)
    if log:
        plain_logarithm(bar.ax.yaxis)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def heat_map(
    ax: Axes,
    means: Mapping[tuple[float, float], float],
    label: str,
    bright_is_low: bool,
    log: bool = False,
    lost: Iterable[tuple[float, float]] = (),
    end: float | None = None,
) -> None:
    """Equal cells, one per setting: the grid's steps are not all equal, and an even map is easier to read. `lost` cells
    are hatched."""
    tau_f, tau_b = _axes([*means, *lost])
    values = np.full((len(tau_b), len(tau_f)), np.nan)
    for (f, b), mean in means.items():
        values[tau_b.index(b), tau_f.index(f)] = mean
    equal_cells(ax, values, label, bright_is_low, log, end)
    for f, b in lost:
        _hatch(ax, tau_f.index(f), tau_b.index(b))
    for axis, taus, along in ((ax.xaxis, tau_f, True), (ax.yaxis, tau_b, False)):
        labels = [f"{tau:g}" for tau in taus]
        every = max(1, round(len(taus) / 7))
        if along:
            every = max(every, math.ceil(len(taus) * (max(map(len, labels)) + 1) / LINE))
        axis.set_ticks(np.arange(len(taus))[::every] + 0.5, labels[::every])
        axis.set_tick_params(length=0)
    ax.set(xlabel=r"$\tau_f$ (draws the choice)", ylabel=r"$\tau_b$ (carries the gradient)")


def _hatch(ax: Axes, x: int, y: int) -> None:
    """Strokes that are seen on every colour: light ones on dark ones."""
    ends = (((0, 0.5), (0.5, 1)), ((0, 0), (1, 1)), ((0.5, 0), (1, 0.5)))
    strokes = [np.add(pair, (x, y)) for pair in ends]
    for color, width in ((DARK, 2.0), (LIGHT, 0.9)):
        ax.add_collection(LineCollection(strokes, colors=color, linewidths=width, capstyle="butt"))


def diagonal(ax: Axes, settings: Iterable[tuple[float, float]]) -> None:
    """Draw the line of equal temperatures, if their ranges overlap."""
    tau_f, tau_b = _axes(settings)
    low, high = max(tau_f[0], tau_b[0]), min(tau_f[-1], tau_b[-1])
    if low >= high:
        return
    both = np.linspace(low, high, 200)
    x, y = _place(both, tau_f), _place(both, tau_b)
    ax.plot(x, y, color=DARK, lw=2.4)
    ax.plot(x, y, color=LIGHT, lw=1.2, ls=(0, (4, 2)), label=r"$\tau_f = \tau_b$")


def _axes(settings: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    pairs = list(settings)
    return sorted({f for f, _ in pairs}), sorted({b for _, b in pairs})


def _place(tau: Array | float, taus: list[float]) -> Array:
    """From temperatures within the map's range to its own units, straight between cells."""
    return np.interp(tau, taus, np.arange(len(taus)) + 0.5)


def marks(ax: Axes, settings: Iterable[tuple[float, float]], marked: Sequence[Mark]) -> list[Mark]:
    """The diagonal and these marks, with a legend below the map; gives the marks that lie outside the map, which are
    not drawn, for the caption to name."""
    pairs = list(settings)
    tau_f, tau_b = _axes(pairs)
    diagonal(ax, pairs)
    edge: dict[str, Any] = {"markeredgecolor": DARK, "ls": "none", "clip_on": False}
    outside = []
    for mark in marked:
        (f, b), label, chosen = mark
        if not (tau_f[0] <= f <= tau_f[-1] and tau_b[0] <= b <= tau_b[-1]):
            outside.append(mark)
            continue
        x, y = _place(f, tau_f), _place(b, tau_b)
        if chosen:
            ax.plot(x, y, "*", ms=10, mfc=LIGHT, mew=0.9, label=label, **edge)
            continue
        ax.plot(x, y, "o", ms=12, mfc="none", mew=3.4, **edge)
        ax.plot(x, y, "o", ms=12, mfc="none", mec=LIGHT, mew=1.6, ls="none", label=label)
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        legend = ax.figure.legend(handles, labels, loc="outside lower center", ncols=3, columnspacing=1.0)
        for handle in filter(None, legend.legend_handles):  # light marks would not be seen outside the map
            handle.set(color=INK, markeredgecolor=INK, markerfacecolor="none")
    return outside
