"""What figures are made of, by numbers worked out by hand."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dst_lab.figures.curves import draw as draw_curves
from dst_lab.figures.heat_map import Mark, fence, heat_map, marks
from dst_lab.figures.importance import chance_level, importance, shares_of
from dst_lab.figures.seeds import far
from dst_lab.figures.slices import numbers_varied, slices
from dst_lab.figures.style import panels, plain_logarithm, settings_text, settle, styled
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


def test_where_the_temperatures_are_nowhere_equal_no_legend_names_a_diagonal() -> None:
    settings = [(f, b) for f in (0.1, 0.2) for b in (1.0, 2.0)]
    assert drawn_marks(settings, [Mark((0.1, 1.0), "ours")]) == ([], ["ours"], [(0.5, 0.5)])
    assert drawn_marks(settings, []) == ([], [], [])
    assert drawn_marks([(1.0, 0.5), (1.0, 1.0)], [])[1] == [], "they meet in a point, of which nothing is seen"


@pytest.mark.parametrize("digits", [1, 3, 5, 6])
@pytest.mark.parametrize("count", [3, 8, 24, 40])
def test_labels_below_a_map_stand_apart(count: int, digits: int) -> None:
    taus = [round(0.051 * 1.11**place, digits) for place in range(count)]
    with styled():
        figure, (ax, *_) = panels(3)
        heat_map(ax, {(tau, 1.0): 1.0 for tau in taus}, "loss", bright_is_low=True)
        settle(figure)
        figure.canvas.draw()
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert len(boxes) >= min(3, len(set(taus)))
    assert all(right.x0 > left.x1 for left, right in pairwise(boxes))


def test_importance_is_epsilon_squared_of_the_ranks() -> None:
    """Six settings, ranks 0 to 5, squares 17.5 in all: tau_f splits them 0, 1, 3 and 2, 4, 5; tau_b in pairs."""
    losses = {
        (0.1, 1.0): 0.10,
        (0.1, 2.0): 0.11,
        (0.1, 3.0): 0.13,
        (0.5, 1.0): 0.12,
        (0.5, 2.0): 0.14,
        (0.5, 3.0): 0.15,
    }
    found = shares_of([setting(loss, tau_f=f, tau_b=b) for (f, b), loss in losses.items()])
    within = 2 * ((0 - 4 / 3) ** 2 + (1 - 4 / 3) ** 2 + (3 - 4 / 3) ** 2)
    assert found["tau_f"] == pytest.approx((17.5 - within - within / 4) / 17.5)
    assert found["tau_b"] == pytest.approx((17.5 - 8.5 - 2 * 8.5 / 3) / 17.5)
    assert set(found) == {"tau_f", "tau_b"}, "what was not varied is not named"


def test_a_weak_field_is_not_judged_by_what_a_strong_one_does() -> None:
    """Ranks 4 i + j of a grid of 4 x 4, 340 in squares: 320 of the one field and 20 of the other, nothing is left."""
    found = shares_of([setting(4 * f + b, tau_f=f, tau_b=b) for f in (0, 1, 2, 3) for b in (0, 1, 2, 3)])
    assert found == pytest.approx({"tau_f": 320 / 340, "tau_b": 20 / 340})


def test_a_field_that_a_search_tries_last_gets_no_credit_for_the_others() -> None:
    """One sweep after the other; the last field does nothing, but is tried where the others are best."""
    generator = np.random.default_rng(0)

    def loss(f: float, b: float) -> float:
        return abs(math.log(f / 0.5)) + abs(math.log(b / 2)) + 0.01 * generator.normal()

    first = [(f, 1.0, 0.0) for f in (0.1, 0.25, 0.5, 1.0, 2.0)]
    then = [(0.5, b, 0.0) for b in (0.5, 2.0, 4.0)]
    last = [(0.5, 2.0, drop) for drop in (0.1, 0.2, 0.3, 0.4, 0.5)]
    settings = [setting(loss(f, b), tau_f=f, tau_b=b, drop=d) for f, b, d in (*first, *then, *last)]
    found = shares_of(settings)
    assert found["drop"] < 0.1
    assert max(found.values()) < chance_level(settings), "so few settings tell next to nothing"


def test_the_figure_says_what_chance_alone_would_do() -> None:
    generator = np.random.default_rng(0)
    noise = [setting(generator.normal(), lr=lr, width=width) for lr, width in generator.uniform(1, 9, (8, 2))]
    drawn = importance(noise, "own")
    level = float(drawn.caption.partition("Dotted: ")[2].partition("%")[0])
    assert level > 30
    assert max(shares_of(noise).values()) < level / 100
    grid = [setting(f, tau_f=f, tau_b=b) for f in range(6) for b in range(6)]
    assert float(importance(grid, "own").caption.partition("Dotted: ")[2].partition("%")[0]) < 35


def test_chance_has_no_share() -> None:
    """The mean of epsilon squared over 200 grids of losses by chance, each at least 0: below 6%."""
    generator, shares = np.random.default_rng(0), []
    for _ in range(200):
        losses = iter(generator.normal(size=25))
        found = shares_of([setting(next(losses), tau_f=f, tau_b=b) for f in range(5) for b in range(5)])
        shares += found.values()
    assert np.mean(shares) < 0.06
    assert np.mean(np.array(shares) == 0) > 0.5


def test_a_number_with_a_value_for_each_setting_is_judged_by_groups_of_neighbours() -> None:
    """An adaptive search of few settings: as many groups as settings judged nothing, and "no field explains" 100%."""
    rates = [10 ** (-4 + 3 * i / 11) for i in range(12)]
    settings = [
        setting(abs(math.log10(lr) + 2.5) + 0.05 * (i % 3), lr=lr, layers=1 + i % 3, text=f"run {i}")
        for i, lr in enumerate(rates)
    ]
    found = shares_of(settings)
    assert found["lr"] > 0.6 > 0.2 > found["layers"]
    caption = importance(settings, "own").caption
    assert caption.startswith(f"lr {100 * found['lr']:.0f}% and layers ")
    assert "% no field that could be judged explains by itself" in caption
    assert "Not judged, since each setting has a value of its own: text." in caption
    assert {name for name, share in shares_of(settings[::2]).items() if share} == {"lr"}, "six settings"


def test_where_nothing_can_be_judged_no_field_has_a_share() -> None:
    assert shares_of([setting(i, text=f"run {i}", other=f"{-i}") for i in range(8)]) == {}
    assert shares_of([setting(1.0, lr=lr, tau_f=f) for lr in (1.0, 2.0, 3.0) for f in (1.0, 2.0)]) == {}


def test_a_field_inside_another_counts_and_a_diverged_setting_ranks_last() -> None:
    settings = [
        setting(0.1 * rate, parameters={"rate": rate, "width": 8 * width}) for rate in (1, 2, 3) for width in (1, 2)
    ]
    found = shares_of(settings)
    assert found["rate"] > 0.9
    assert found["width"] == 0.0
    lost = shares_of([*settings, setting(math.inf, parameters={"rate": 9, "width": 8})])
    assert lost["rate"] > 0.9
    drawn = importance(settings, "own")
    assert drawn.caption.startswith("rate 100% and width 0% of how the 6 settings differ")


def test_the_frame_is_that_of_the_settings_inside_the_fence() -> None:
    settings = [setting(1e6 if rate == 9 else rate, lr=rate) for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 9.0)]
    drawn = slices(settings, "own")
    low, high = drawn.figure.subfigs[0].axes[0].get_ylim()
    assert -0.1 < low < 0.1
    assert 0.6 < high < 2
    assert drawn.caption.endswith("Above the frame, or with a run that diverged: 1.")


def test_settings_without_a_number_are_counted() -> None:
    settings = [setting(rate, lr=rate, tau_f=tau) for rate in (0.1, 0.2, 0.3) for tau in (0.5, 1.0, 1.5)]
    ruled = setting(0.05, lr=0.1, tau_f="self")
    told = "Without a number in some panel, such as one that a rule sets: 1, the lowest of them 0.05."
    assert told in slices([*settings, ruled], "own").caption
    assert "Without a number" not in slices(settings, "own").caption


def test_each_number_that_was_varied_has_a_panel_the_one_that_mattered_first() -> None:
    pairs = [(rate, tau) for rate in (0.001, 0.01, 0.1) for tau in (0.5, 1.0, 1.5)]
    settings = [setting(10 * rate + 0.001 * tau, lr=rate, tau_f=tau, deep=rate > 0.05) for rate, tau in pairs]
    assert numbers_varied(settings) == ["lr", "tau_f"], "a truth is no number"
    drawn = slices([*settings, setting(math.inf, lr=0.02, tau_f=0.7, deep=False)], "own")
    left, right = (part.axes[0] for part in drawn.figure.subfigs)
    assert (left.get_xlabel(), left.get_xscale()) == ("lr", "log")
    assert (right.get_xlabel(), right.get_xscale()) == (r"$\tau_f$", "linear")
    (dots,) = left.get_lines()
    assert sorted(dots.get_xdata()) == sorted(rate for rate, _ in pairs)
    assert drawn.caption.endswith("Above the frame, or with a run that diverged: 1.")


def test_a_number_of_which_every_value_diverged_has_no_panel() -> None:
    settings = [setting(rate, lr=rate, tau_f="self") for rate in (0.1, 0.2, 0.3)]
    lost = [setting(math.inf, lr=0.1, tau_f=tau) for tau in (0.5, 1.0, 1.5)]
    assert numbers_varied([*settings, *lost]) == ["lr"]


def test_a_setting_that_leaves_a_number_at_its_default_is_drawn_there() -> None:
    """Records do not mention a weight decay of 0."""
    decays = [{}, {"weight_decay": 0.01}, {"weight_decay": 0.1}]
    settings = [
        setting(0.1 + i + 0.01 * batch, task="stochastic-binary", batch=batch, **decay)
        for i, decay in enumerate(decays)
        for batch in (32, 64)
    ]
    assert numbers_varied(settings) == ["weight_decay"]
    (dots,) = slices(settings, "network").figure.axes[0].get_lines()
    assert sorted(dots.get_xdata()) == [0, 0, 0.01, 0.01, 0.1, 0.1]


def test_an_estimator_far_from_all_others_is_written_at_the_edge() -> None:
    near = {"a": np.array([1.0, 2.0]), "b": np.array([1.5, 3.0])}
    assert far({**near, "c": np.array([30.0, 31.0])}) == ["c"]
    assert far({**near, "c": np.array([2.5, 31.0])}) == [], "one seed of it lies among the others"
    assert far(near) == []
    assert far({"a": np.array([1.0])}) == []


def test_temperatures_are_told_in_one_order() -> None:
    assert settings_text({"name": "decoupled", "tau_b": 0.5, "tau_f": 2.0}) == r"$\tau_f$ 2, $\tau_b$ 0.5"


@pytest.mark.parametrize(
    ("ends", "widest", "labels"),
    [
        ((0.02, 0.6), 1000, {0.02: "0.02", 0.05: "0.05", 0.5: "0.5"}),
        ((1e4, 6e6), 1e4, {2e4: "20k", 5e5: "500k", 5e6: "5M"}),
        ((20.0, 4e6), 1000, {1e2: "$10^{2}$", 1e6: "$10^{6}$"}),
    ],
)
def test_a_logarithmic_axis_says_what_its_ticks_are(
    ends: tuple[float, float], widest: float, labels: dict[float, str]
) -> None:
    _, (ax,) = panels(1)
    ax.set_xscale("log")
    ax.set_xlim(*ends)
    plain_logarithm(ax.xaxis, widest)
    written = dict(zip(ax.get_xticks(), ax.xaxis.get_major_formatter().format_ticks(ax.get_xticks()), strict=True))
    for place, text in labels.items():
        (found,) = (label for tick, label in written.items() if tick == pytest.approx(place))
        assert found == text


@pytest.mark.parametrize("many", [1, 6])
def test_a_legend_of_long_rules_lies_whole_inside_its_panel(many: int) -> None:
    rule = "self:ceiling=0.3:draw=1:floor=0.3:high=0.2:low=0.1:share=0.1875"
    settings = {str(n): setting(1.0 + n, tau_f=f"{rule}{n}", tau_b=f"{rule}{n}") for n in range(many)}
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
