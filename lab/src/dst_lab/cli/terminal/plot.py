"""Curves in a terminal: lines of dots in braille characters, or of letters where there are none."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.text import Text

from dst_lab.shown import shown

COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a braille character, by its column and row."""
_OUTLIERS = 0.05
"""This share of all values, at the bad end, may lie outside: first losses would press all others flat."""
_FAR = 10.0
"""From this ratio of the highest to the lowest value on, the axis is logarithmic."""


@dataclass(frozen=True)
class Curve:
    """A line: x [T], increasing, and y [T], NaN where there is none."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]


def letter(number: int) -> str:
    return LETTERS[number % len(LETTERS)]


def color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def plot(
    curves: Sequence[Curve], width: int, height: int, *, x_end: float, x_label: str, good_end: int = -1,
    ascii_only: bool = False,
) -> list[Text]:  # fmt: skip
    """Lines of text, `height` of them for the curves and two for the axis below. Each curve ends in its letter, and
    the first is drawn over the others. `good_end` is 1 where high values are good, -1 where low ones are."""
    low, high = _limits(curves, good_end)
    labels = [f"{high:.4g}", f"{low:.4g}"]
    if is_logarithmic(curves, good_end):
        curves = [Curve(curve.x, np.log(curve.y)) for curve in curves]
        low, high = math.log(low), math.log(high)
    margin = max(map(len, labels)) + 1
    columns = max(8, width - margin - 1)
    cells = _Cells(columns, height, ascii_only)
    ends = [cells.draw(number, curve, x_end, low, high) for number, curve in reversed(list(enumerate(curves)))]
    cells.mark(reversed(ends))
    corner, line, side = ("+", "-", "|") if ascii_only else ("└", "─", "│")
    rows = []
    for row in range(height):
        label = labels[0] if row == 0 else labels[1] if row == height - 1 else ""
        rows.append(Text(f"{label:>{margin}}{side}", style="dim", no_wrap=True).append_text(cells.row(row)))
    rows.append(Text(" " * margin + corner + line * columns, style="dim", no_wrap=True))
    end = shown(f"{x_end:g} {x_label}")
    rows.append(Text(" " * (margin + 1) + "0" + f"{end:>{columns - 1}}", style="dim", no_wrap=True))
    return rows


def is_logarithmic(curves: Sequence[Curve], good_end: int) -> bool:
    """True where the axis is: what is shown is above 0, and so far apart that most of it would lie flat on one side."""
    low, high = _limits(curves, good_end)
    return low > 0 and high >= _FAR * low


def _limits(curves: Sequence[Curve], good_end: int) -> tuple[float, float]:
    """The lowest and the highest value that are shown, without outliers at the bad end."""
    values = np.concatenate([curve.y[np.isfinite(curve.y)] for curve in curves] or [np.zeros(0)])
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if good_end < 0:
        high = float(np.quantile(values, 1 - _OUTLIERS))
    elif good_end > 0:
        low = float(np.quantile(values, _OUTLIERS))
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = abs(low) / 10 or 1.0
        return low - room, high + room
    return low, high


class _Cells:
    """The characters of a plot, each with the number of the curve that was drawn there last."""

    def __init__(self, columns: int, rows: int, ascii_only: bool) -> None:
        self.columns, self.rows, self.ascii_only = columns, rows, ascii_only
        self.dots = np.zeros((rows, columns), np.int64)
        self.curve = np.full((rows, columns), -1)
        self.ends: dict[tuple[int, int], int] = {}

    def draw(self, number: int, curve: Curve, x_end: float, low: float, high: float) -> tuple[int, int] | None:
        """The row and column where it ends; None where there is nothing to draw."""
        finite = np.isfinite(curve.y)
        if not finite.any():
            return None
        wide, tall = (1, 1) if self.ascii_only else (2, 4)
        across, down = self.columns * wide, self.rows * tall
        x = np.clip(curve.x[finite] / max(x_end, 1e-12), 0, 1) * (across - 1)
        y = (1 - (np.clip(curve.y[finite], low, high) - low) / (high - low)) * (down - 1)
        places = np.arange(round(x[0]), round(x[-1]) + 1)
        heights = np.round(np.interp(places, x, y)).astype(int)
        before = heights[0]
        for place, at in zip(places, heights, strict=True):
            # Steep parts are filled, so that a line has no holes.
            for dot in range(min(before + 1, at), max(before - 1, at) + 1) if before != at else (at,):
                self._set(number, place, dot, wide, tall)
            before = at
        return int(before) // tall, int(places[-1]) // wide

    def mark(self, ends: Iterable[tuple[int, int] | None]) -> None:
        """The letters of the curves that end here, a row or two off where another has the place."""
        for number, end in enumerate(ends):
            if end is not None:
                row, column = end
                near = sorted(range(self.rows), key=lambda other: abs(other - row))
                free = (other for other in near[:5] if (other, column) not in self.ends)
                self.ends[next(free, row), column] = number

    def _set(self, number: int, place: int, dot: int, wide: int, tall: int) -> None:
        row, column = dot // tall, place // wide
        if self.curve[row, column] != number:
            self.dots[row, column] = 0
        self.curve[row, column] = number
        self.dots[row, column] |= _DOTS[place % wide][dot % tall]

    def row(self, row: int) -> Text:
        text = Text(no_wrap=True)
        for column in range(self.columns):
            number = self.ends.get((row, column), -1)
            if number >= 0:
                text.append(letter(number), style=f"bold {color(number)}")
            elif self.curve[row, column] >= 0:
                number = int(self.curve[row, column])
                mark = letter(number) if self.ascii_only else chr(0x2800 + int(self.dots[row, column]))
                text.append(mark, style=color(number))
            else:
                text.append(" ")
        return text
