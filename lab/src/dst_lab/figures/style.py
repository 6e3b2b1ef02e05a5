"""How figures look, and how they are written: the same bytes from the same values.

Lines differ in colour, style and marker; maps use cividis, which is even in lightness for every reader.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator

from dst_lab.cards import shown
from dst_lab.estimators import temperatures_in
from dst_lab.records import Array, spread

INK, FAINT, RULE, PAPER = "#1d1e20", "#6d7075", "#d9dad6", "#ffffff"
_HUGE = 1e9
"""From here on a number is written with an exponent."""
"""A page may replace these four, and the colours of estimators, by its own: lines and text have no others."""
MAP = "cividis"
WIDTH, HEIGHT = 3.9, 3.1
"""Inches per panel. All panels of a figure are equally wide, and each can be read alone."""


LACKING = "Not in this store yet:"


RC = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
    "svg.fonttype": "path",
    "svg.hashsalt": "dst",
    "savefig.dpi": 160,
    "image.cmap": MAP,
}


@dataclass
class Drawn:
    """A figure with its title and caption."""

    title: str
    figure: Figure
    caption: str
    panels: int = 1
    missing: list[str] = field(default_factory=list)
    recipes: Sequence[str] = ()
    """The recipes whose runs are drawn."""

    @property
    def empty(self) -> bool:
        """True if every panel only says what is missing."""
        return all(any(text.get_text().startswith(LACKING) for text in ax.texts) for ax in self.figure.axes)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style, whatever matplotlib is configured to."""
    with matplotlib.style.context(["default", RC]):
        yield


def panels(
    count: int, width: float = WIDTH, height: float = HEIGHT, heights: Sequence[float] = (1,)
) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, side by side, and their axes: in each, from top to bottom, one for each number in
    `heights`, which are in proportion."""
    figure = Figure(figsize=(count * width, height), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(1, count, squeeze=False)[0]
    for part in parts:
        part.set_facecolor(PAPER)
    grids = [part.subplots(len(heights), squeeze=False, height_ratios=heights) for part in parts]
    return figure, [ax for grid in grids for ax in grid[:, 0]]


def settle(figure: Figure) -> None:
    """Lay the figure out once and round where its axes lie: the solver's last digits differ between processes."""
    if figure.get_layout_engine() is None:
        return
    with _readable(figure):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for part in figure.subfigs:
        for ax in part.axes:
            left, bottom, width, height = (round(number, 5) for number in ax.get_position().bounds)
            ax.set_position((left, bottom, width, height))


def safe(text: str) -> str:
    """Text from a store that is safe in a figure: control characters are written out, and dollar signs that are not
    valid mathematics are escaped. Tick labels must be passed through it; other text is when the figure is written."""
    return "\n".join(map(_line, shown(text).split("\n")))


def _line(text: str) -> str:
    """One line, with its dollar signs escaped unless they enclose valid mathematics."""
    if text.count("$") > 1:
        try:
            MathTextParser("path").parse(text)
        except ValueError:
            return re.sub(r"(?<!\\)\$", r"\\$", text)
    return text


@contextmanager
def _readable(figure: Figure) -> Iterator[None]:
    """Draw with text that is safe. A warning about a character that the font lacks would print it on the terminal."""
    for text in figure.findobj(Text):
        if isinstance(text, Text) and (plain := safe(text.get_text())) != text.get_text():
            text.set_text(plain)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing|Matplotlib currently does not support", UserWarning)
        yield


def absent(ax: Axes, missing: Sequence[str]) -> None:
    """Say in the place of a plot what it would need."""
    ax.set_axis_off()
    lines = [line for text in missing for line in textwrap.wrap(text, 42)]
    ax.text(0.5, 0.5, "\n".join([LACKING, *lines]), ha="center", va="center", color=FAINT)


def write(figure: Figure, kind: str) -> bytes:
    """The figure as "png" or "svg", without dates or versions."""
    stream = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with styled(), _readable(figure):
        figure.savefig(stream, format=kind, metadata=metadata)
    return _numbered(stream.getvalue()) if kind == "svg" else stream.getvalue()


def _numbered(svg: bytes) -> bytes:
    """Clips named by their order: matplotlib names them after coordinates whose last digits the solver leaves open."""
    names = dict.fromkeys(re.findall(rb'<clipPath id="(\w+)"', svg))
    for number, name in enumerate(names):
        svg = re.sub(rb"(id=\"|#)" + name + rb"\b", rb"\g<1>clip%d" % number, svg)
    return svg


def number(value: float, digits: int = 3) -> str:
    """A number for a caption."""
    rounded = f"{value:.{digits}g}"
    return rounded if not 10**digits <= abs(value) < _HUGE else f"{float(rounded):,.0f}"


def plus_minus(values: Array) -> str:
    """Mean and standard deviation over runs, to the second digit of the latter and at least four of the mean; of one
    run, its value, and "nan" or "inf" where one of the values is."""
    with np.errstate(invalid="ignore"):
        mean, width = float(values.mean()), float(spread(values))
    if not math.isfinite(width):
        return number(mean, 4)
    if not width:
        return number(mean, 4) + (" ± 0" if len(values) > 1 else "")
    if max(abs(mean), width) >= _HUGE:
        return f"{mean:.4g} ± {width:.2g}"
    of_width = 1 - math.floor(math.log10(width))
    of_mean = 3 - math.floor(math.log10(abs(mean))) if mean else 0
    decimals = max(0, of_width, min(of_mean, of_width + 2))
    return f"{mean:,.{decimals}f} ± {width:,.{decimals}f}"


def plain_logarithm(axis: Axis, widest: float = 1000) -> None:
    """Plain numbers at 1, 2 and 5 of each decade, from a million on with k and M; where the ends are further apart than
    by the factor `widest`, at decades alone, and as powers of ten where numbers would be long."""
    low, high = sorted(axis.get_view_interval())
    decades, long = high / low > widest, low <= 1e-5 or high >= 1e6
    axis.set_major_locator(LogLocator(subs=(1,) if decades else (1, 2, 5)))
    if decades and long:
        axis.set_major_formatter(lambda value, _: f"$10^{{{round(math.log10(value))}}}$")
    else:
        axis.set_major_formatter(lambda value, _: _short(value) if high >= 1e6 else f"{value:g}")
    axis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """20,000 as 20k and 5,000,000 as 5M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def listing(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def settings_text(values: Mapping[str, Any]) -> str:
    """The temperatures of an estimator's dictionary: "τf 0.1, τb 0.7", or "τf, τb self" where one rule sets both."""
    taus = temperatures_in(values)
    texts = set(taus.values())
    if len(taus) > 1 and len(texts) == 1 and all(isinstance(text, str) for text in texts):
        return f"{', '.join(map(letter, taus))} {texts.pop()}"
    return ", ".join(f"{letter(name)} {value_text(value)}" for name, value in taus.items())


def numbers_of(estimator: Mapping[str, Any]) -> dict[str, Any]:
    """What an estimator's dictionary has besides its name, temperatures first: a store keeps no order."""
    others = {name: value for name, value in sorted(estimator.items()) if name != "name"}
    return temperatures_in(estimator) | others


def letter(name: str) -> str:
    """A temperature as a Greek letter for a figure; any other name as it is."""
    head, _, index = name.partition("_")
    if head != "tau":
        return name
    return rf"$\{head}_{index}$" if index else rf"$\{head}$"


def value_text(value: Any) -> str:
    """A number, or the text of a schedule."""
    return value if isinstance(value, str) else f"{value:g}"
