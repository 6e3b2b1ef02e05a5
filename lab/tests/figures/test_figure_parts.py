"""What figures are made of, by numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
from dst_lab.figures.heat_map import Mark, fence, heat_map, marks
from dst_lab.figures.style import panels, plus_minus


def test_colours_end_where_outliers_begin_on_the_worse_side() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]  # quartiles 2 and 4
    assert fence(values, -1) == pytest.approx(7.0)
    assert fence([-value for value in values], 1) == pytest.approx(-7.0)
    assert fence(values, 1) is None, "nothing lies beyond it on that side"
    assert fence(values, 0) is None, "no side is the worse one"
    assert fence([0.0, 0.0, 0.0, 0.0, 5.0], -1) is None, "quartiles that are equal end nothing"
    assert fence([*values, math.nan], -1) == pytest.approx(7.0)
    assert fence([], -1) is None


def drawn_marks(settings: list[tuple[float, float]], marked: list[Mark]) -> tuple[list[Mark], list[str], list[Any]]:
    """The marks that lie outside, what the legend names and where stars and rings were drawn."""
    figure, (ax,) = panels(1)
    heat_map(ax, dict.fromkeys(settings, 1.0), "loss", bright_is_low=True)
    outside = marks(ax, settings, marked)
    places = [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() in ("*", "o")]
    legends = [legend for one in (figure, *figure.subfigs) for legend in one.legends]
    return outside, [text.get_text() for legend in legends for text in legend.get_texts()], places


def test_a_mark_outside_the_map_is_given_back_and_not_drawn_at_its_edge() -> None:
    settings = [(f, b) for f in (0.5, 1.0, 2.0) for b in (0.5, 1.0)]
    beyond = [Mark((0.1, 0.7), "theirs", chosen=False), Mark((1.0, 1.1), "mine")]
    ours, corner = Mark((0.75, 0.5), "ours"), Mark((2.0, 1.0), "corner")
    outside, legend, places = drawn_marks(settings, [*beyond, ours, corner])
    assert outside == beyond
    assert legend == [r"$\tau_f = \tau_b$", "ours", "corner"]
    assert places == [(1.0, 0.5), (2.5, 1.5)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((113.0, 161.0), "137.0 ± 33.9"),
        ((126.1, 126.7), "126.40 ± 0.42"),
        ((0.3197, 0.3257), "0.3227 ± 0.0042"),
        ((0.42,), "0.42"),
        ((1e4, 3e4), "20,000 ± 14,142"),
        ((0.42, 0.42), "0.42 ± 0"),
        ((0.1, 0.1, 0.1), "0.1 ± 0"),
        ((9.558e33,), "9.558e+33"),
        ((math.inf, 1.0), "inf"),
        ((math.inf, math.inf), "inf"),
    ],
)
def test_a_mean_has_the_digits_of_its_deviation(values: tuple[float, ...], said: str) -> None:
    assert plus_minus(np.array(values)) == said
