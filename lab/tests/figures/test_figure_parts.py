"""What figures are made of, by numbers worked out by hand."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dst_lab.figures.curves import draw as draw_curves
from dst_lab.figures.heat_map import Mark, fence, heat_map, marks
from dst_lab.figures.importance import analysed, importance
from dst_lab.figures.seeds import far
from dst_lab.figures.slices import numbers_varied, slices
from dst_lab.figures.style import panels, plain_logarithm, settings_text, settle, styled
from dst_lab.records import Row, Setting
from dst_lab.store import Run, Series
from scipy import stats


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


def replicated(losses: Any, levels: dict[str, list[Any]]) -> list[Setting]:
    """A setting for each entry of `losses` [.., seeds], with fields by the place in the axes before."""
    settings = []
    for place in np.ndindex(losses.shape[:-1]):
        fields = {name: values[i] for (name, values), i in zip(levels.items(), place, strict=True)}
        rows = [setting(float(loss), **dict(fields)).rows[0] for loss in losses[place]]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    return settings


LR = {"lr": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}
GRID = {**LR, "tau_b": [0.1, 0.3, 0.5, 1.0, 2.0]}


def test_what_mattered_is_the_analysis_of_variance_of_a_grid_with_seeds() -> None:
    """Against sums of squares worked out cell by cell, and scipy's F."""
    draws = np.random.default_rng(0)
    rate, tau = np.array([0, 0.3, 0.6, 0.9, 1.2]), np.array([0, 0.1, 0.2, 0.5, 1.0])
    y = rate[:, None, None] + tau[:, None] * (1 - 0.8 * rate[:, None, None]) + 0.1 * draws.standard_normal((5, 5, 3))
    found = analysed(replicated(np.exp(y), GRID))
    assert found is not None
    assert (found.runs, found.of_ranks) == (75, False)
    total, within = ((y - y.mean()) ** 2).sum(), ((y - y.mean(2, keepdims=True)) ** 2).sum()
    squares = {
        "lr": 15 * ((y.mean((1, 2)) - y.mean()) ** 2).sum(),
        "tau_b": 15 * ((y.mean((0, 2)) - y.mean()) ** 2).sum(),
        "seeds": within,
    }
    squares["together"] = total - sum(squares.values())
    assert found.shares == pytest.approx({name: value / total for name, value in squares.items()})
    for name, freedom in (("lr", 4), ("tau_b", 4), ("together", 16)):
        assert found.p[name] == pytest.approx(
            stats.f.sf(squares[name] / freedom / (within / 50), freedom, 50), rel=1e-6
        )
    caption = importance(replicated(np.exp(y), GRID), found, "own").caption
    assert f"lr {100 * found.shares['lr']:.0f}% (p < 0.001) and tau_b" in caption
    assert f"seeds of one setting {100 * found.shares['seeds']:.0f}%." in caption


def test_fields_that_act_together_only_have_no_share_of_their_own() -> None:
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    y = signs[:, :, None] + 0.01 * np.random.default_rng(1).standard_normal((2, 2, 5))
    found = analysed(replicated(np.exp(y), {"lr": [0.1, 1.0], "tau_b": [0.5, 1.0]}))
    assert found is not None
    assert found.shares["together"] > 0.99
    assert max(found.shares["lr"], found.shares["tau_b"]) < 0.001
    assert found.p["together"] < 1e-10 < min(found.p["lr"], found.p["tau_b"])


def test_what_two_fields_explain_alike_is_neithers() -> None:
    """Each learning rate was tried at a width of its own."""
    y = np.arange(4.0)[:, None] + 0.01 * np.random.default_rng(2).standard_normal((4, 3))
    settings = []
    for place, losses in enumerate(np.exp(y)):
        fields = {"lr": 0.1 * (1 + place // 2), "width": 8 * (1 + place // 2), "depth": place % 2}
        rows = [setting(float(loss), **dict(fields)).rows[0] for loss in losses]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    found = analysed(settings)
    assert found is not None
    assert found.shares["lr"] == found.shares["width"] == pytest.approx(0.0, abs=1e-9)
    assert found.shares["depth"] == pytest.approx(0.2, abs=0.02)


def test_losses_that_have_no_logarithm_are_ranked_and_what_diverged_comes_last() -> None:
    y = np.arange(6.0).reshape(3, 2, 1) - 2 + 0.01 * np.arange(3)
    settings = replicated(y, {"lr": [0.1, 1.0, 2.0], "tau_b": [0.5, 1.0]})
    found = analysed(settings)
    assert found is not None
    assert found.of_ranks
    worst = replace(settings[0], rows=settings[0].rows[:1], diverged=2)
    lost = analysed([worst, *settings[1:]])
    assert lost is not None
    assert lost.of_ranks
    assert lost.shares["lr"] < found.shares["lr"], "the best rate has two of the three worst runs"
    assert "rank of the loss" in importance(settings, found, "own").caption


def test_without_seeds_or_with_one_field_nothing_is_said() -> None:
    y = np.random.default_rng(3).uniform(1, 2, (5, 5, 1))
    assert analysed(replicated(y, GRID)) is None, "one seed each: nothing to judge fields by"
    assert analysed(replicated(y[:, 0, :].repeat(3, -1) + 0.1, LR)) is None


def test_a_number_with_many_values_is_judged_by_groups_of_neighbours() -> None:
    rates = [10 ** (-4 + 3 * i / 15) for i in range(16)]
    draws = np.random.default_rng(4)
    settings = []
    for i, lr in enumerate(rates):
        losses = np.exp(abs(math.log10(lr) + 2.5) + 0.02 * (i % 2) + 0.02 * draws.standard_normal(3))
        rows = [setting(float(loss), lr=lr, depth=1 + i % 2, text=f"run {i}").rows[0] for loss in losses]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    found = analysed(settings)
    assert found is not None
    assert set(found.shares) == {"lr", "depth", "together", "seeds"}, "a text of each setting's own explains nothing"
    assert found.shares["lr"] > 0.6 > 0.1 > found.shares["depth"]


def test_the_frame_is_that_of_the_settings_inside_the_fence() -> None:
    settings = [setting(1e6 if rate == 9 else rate, lr=rate) for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 9.0)]
    drawn = slices(settings, numbers_varied(settings), "own")
    low, high = drawn.figure.subfigs[0].axes[0].get_ylim()
    assert -0.1 < low < 0.1
    assert 0.6 < high < 2
    assert drawn.caption.endswith("Above the frame, or with a run that diverged: 1.")


def test_each_number_that_was_varied_has_a_panel() -> None:
    pairs = [(rate, tau) for rate in (0.001, 0.01, 0.1) for tau in (0.5, 1.0, 1.5)]
    settings = [setting(10 * rate + 0.001 * tau, lr=rate, tau_f=tau, deep=rate > 0.05) for rate, tau in pairs]
    assert sorted(numbers_varied(settings)) == ["lr", "tau_f"], "a truth is no number"
    drawn = slices([*settings, setting(math.inf, lr=0.02, tau_f=0.7, deep=False)], ["lr", "tau_f"], "own")
    left, right = (part.axes[0] for part in drawn.figure.subfigs)
    assert (left.get_xlabel(), left.get_xscale()) == ("lr", "log")
    assert (right.get_xlabel(), right.get_xscale()) == (r"$\tau_f$", "linear")
    (dots,) = left.get_lines()
    assert sorted(dots.get_xdata()) == sorted(rate for rate, _ in pairs)
    assert drawn.caption.endswith("Above the frame, or with a run that diverged: 1.")


def test_a_setting_without_a_number_has_no_dot_against_it() -> None:
    settings = [setting(rate, lr=rate, tau_f=tau) for rate, tau in ((0.1, 0.5), (0.2, 1.0), (0.3, 1.5))]
    assert "no dot" not in slices(settings, ["lr", "tau_f"], "own").caption
    drawn = slices([*settings, setting(0.4, lr=0.4, tau_f="self")], ["lr", "tau_f"], "own")
    assert [len(part.axes[0].get_lines()[0].get_xdata()) for part in drawn.figure.subfigs] == [4, 4]
    assert np.isnan(drawn.figure.subfigs[1].axes[0].get_lines()[0].get_xdata()).sum() == 1
    assert drawn.caption.endswith("A setting without a number has no dot against it.")


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
    (dots,) = slices(settings, ["weight_decay"], "network").figure.axes[0].get_lines()
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
