"""What figures are made of, by numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
from dst_lab.figures.curves import draw as draw_curves
from dst_lab.figures.heat_map import Mark, fence, heat_map, marks
from dst_lab.figures.style import panels, plus_minus, settle
from dst_lab.records import Row, Setting
from dst_lab.store import Run, Series


def setting(loss: float, **fields: Any) -> Setting:
    config = {"task": "own", "estimator": {"name": "decoupled", "tau_b": 1.0, "tau_f": 1.0}, "seed": 0, "lr": 0.1}
    config["estimator"] |= {name: fields.pop(name) for name in ("tau_f", "tau_b") if name in fields}
    run = Run(id="0", config={**config, **fields}, status="done", detail={}, provenance_id="")
    history = {"validation_loss": Series(np.array([1]), np.array([loss]))}
    return Setting(run.config, [Row(run, lambda: history)] if math.isfinite(loss) else [], "", 0)


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


def test_a_legend_of_long_rules_lies_whole_inside_its_panel() -> None:
    rule = "self:ceiling=0.3:draw=1:floor=0.3:high=0.2:low=0.1:share=0.1875"
    settings = {str(n): setting(1.0 + n, tau_f=f"{rule}{n}", tau_b=f"{rule}{n}") for n in range(6)}
    figure = draw_curves(settings, "own", ["validation_loss", "validation_loss"])
    settle(figure)  # a layout that does not work out is a warning, and an error here
    for part in figure.subfigs:
        (ax,) = part.axes
        frame = part.bbox
        for text in ax.get_legend().get_texts():
            place = text.get_window_extent()
            assert frame.x0 <= place.x0 < place.x1 <= frame.x1
            assert frame.y0 <= place.y0 < place.y1 <= ax.get_window_extent().y0
        assert ax.get_window_extent().width > 0.7 * frame.width
        assert ax.get_window_extent().height > 0.4 * frame.height
        lines = ax.get_legend().get_texts()[0].get_text().split("\n")
        assert "".join(lines).replace(" ", "") == rf"DecoupledST$\tau_f$,$\tau_b${rule}0"
        assert not any(line[0].isdigit() for line in lines), "no number is broken"


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
