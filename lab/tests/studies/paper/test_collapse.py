"""Runs that collapse beside runs that converge: what the autoencoder's figures draw and say of each."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import planted
import pytest
from dst_lab.figures import Drawn
from dst_lab.figures.style import number, plus_minus, settle, styled
from dst_lab.records import Rows, pursue
from dst_lab.runs import Config
from dst_lab.store import Record, Series, Store
from matplotlib.axes import Axes
from studies import PAPER
from studies.paper.claims import judge
from studies.paper.claims.mechanisms import converged_below
from studies.paper.figures import FIGURES
from studies.paper.recipes import RECIPES

SILENT = 205.0
"""The planted loss of a collapsed run, from the first evaluation to the last."""
RATES = (0.0003, 0.0005, 0.0007, 0.001)


def collapsing(config: Config) -> Record:
    """The higher the rate, the more seeds collapse, one of them after it had learned; at the lowest none does. One run
    diverges."""
    one = planted.record(config)
    loss, codes = one.history["validation_loss"], one.history["perplexity"]
    if config.seed < 3 * RATES.index(config.lr):
        kept = 100 if (config.lr, config.seed) == (0.0005, 0) else 0
        for series, silent in ((loss, SILENT), (codes, 1.0)):
            series.values[kept:] = silent
    one = replace(one, history={"validation_loss": loss, "perplexity": codes}, artefacts={})
    lost = config.lr == 0.001 and config.seed == 9 and config.estimator.to_dict() == {
        "name": "decoupled", "tau_f": 0.0, "tau_b": 1.0,
    }  # fmt: skip
    return replace(one, status="diverged") if lost else one


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    path = tmp_path_factory.mktemp("collapse") / "search.sqlite"
    with Store.open(path, write=True) as store:
        plan = RECIPES.plans["catae-sequential"]("paper")
        pursue(plan, store, lambda configs, _: bool(store.put(map(collapsing, configs))) or True)
        yield PAPER.rows(store, "paper")


@pytest.fixture(scope="module")
def search(rows: Rows) -> Drawn:
    return drawn("autoencoder-search", rows)


def drawn(name: str, rows: Rows) -> Drawn:
    with styled():
        one = FIGURES[name](rows)
        settle(one.figure)
    return one


def found(rows: Rows, lr: float, tau_f: float, tau_b: float) -> np.ndarray:
    """[seeds, T] validation losses of the runs that trained to the end, straight from the store."""
    at = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
    runs = [r for r in rows.store.runs() if r.config["estimator"] == at and r.config["lr"] == lr and r.status == "done"]
    return np.stack([rows.store.history(run.id)["validation_loss"].values.astype(float) for run in runs])


def test_a_search_has_a_line_for_each_learning_rate(rows: Rows, search: Drawn) -> None:
    (forward, _), (backward, _) = (part.axes for part in search.figure.subfigs)
    for ax, setting in ((forward, lambda tau: (tau, 1.0)), (backward, lambda tau: (2.0, tau))):
        lines = {line.get_label(): line for line in ax.get_lines()}
        for lr in RATES:
            taus, losses = lines[f"rate {lr:g}"].get_data()
            assert len(taus) == 8
            expected = [found(rows, lr, *setting(tau)).min(1).mean() for tau in taus]
            np.testing.assert_allclose(losses, expected, rtol=1e-6)
        rates = [lines[f"rate {lr:g}"] for lr in RATES]
        assert len({line.get_marker() for line in rates}) == 4, "told apart without colour"
        assert sorted(line.get_alpha() for line in rates) == [line.get_alpha() for line in rates], "darker as it rises"
        assert not ax.containers, "bars of four lines would hide each other"
        assert {text.get_text() for text in ax.figure.axes[-1].get_legend().get_texts()} >= {
            f"rate {r:g}" for r in RATES
        }


def test_a_search_stars_the_chosen_rate_and_shows_its_seeds(rows: Rows, search: Drawn) -> None:
    chosen = rows.chosen["categorical-autoencoder", "decoupled"]
    assert chosen.lr == 0.0003, "where no seed collapses"
    for part, tau_f, tau_b, tau in zip(search.figure.subfigs, (2.0, 2.0), (1.0, 0.5), (2.0, 0.5), strict=True):
        lines = {line.get_label(): line for line in part.axes[0].get_lines()}
        there = found(rows, 0.0003, tau_f, tau_b).min(1)
        assert lines[f"chosen, {tau:g}"].get_xydata()[0] == pytest.approx([tau, there.mean()])
        at, losses = lines["seeds at rate 0.0003"].get_data()
        np.testing.assert_allclose(np.sort(losses[at == tau]), np.sort(there), rtol=1e-6)
        assert lines[f"the paper's optimum, {tau:g}"].get_xdata() == [tau, tau]
    assert "both at 4 learning rates: the search ends at τf = 2, τb = 0.5, learning rate 0.0003 (" in search.caption
    assert "n = 9 to 10 search seeds, one line per learning rate; dots: the seeds at the chosen rate." in search.caption


def test_the_seeds_that_converged_are_counted_as_the_claims_count_them(rows: Rows, search: Drawn) -> None:
    runs = [run for run in rows.store.runs() if run.status == "done"]
    best = min(rows.store.history(run.id)["validation_loss"].values.min() for run in runs)
    mark = (SILENT + best) / 2
    assert converged_below(rows) == pytest.approx(mark)
    total = dict.fromkeys(RATES, 0)
    settings = [[(tau, 1.0) for tau in (0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3)]]
    settings += [[(2.0, tau) for tau in (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3)]]
    for part, at in zip(search.figure.subfigs, settings, strict=True):
        above, below = part.axes
        assert below.get_xlim() == above.get_xlim()
        assert below.get_title(loc="left") == "seeds of 10 that converged, by learning rate"
        assert below.get_xlabel()
        assert [label.get_text() for label in below.get_yticklabels()] == [f"{lr:g}" for lr in RATES]
        counts = {text.get_position(): int(text.get_text()) for text in below.texts}
        assert len(counts) == 32
        for y, lr in enumerate(RATES):
            for tau_f, tau_b in at:
                expected = int((found(rows, lr, tau_f, tau_b)[:, -1] < mark).sum())
                assert counts[tau_b if tau_f == 2 and part is search.figure.subfigs[1] else tau_f, y] == expected
                total[lr] += expected if (tau_f, tau_b) != (2.0, 1.0) or part is search.figure.subfigs[0] else 0
    said = ", ".join(f"{total[lr]} of 150 at {lr:g}" for lr in RATES[:-1])
    assert f"below {mark:.4g} nats; runs in all: {said} and {total[0.001]} of 150 at 0.001." in search.caption
    assert len({*total.values()}) == 4
    assert search.caption.endswith("Diverged, and in no mean: 1 at τf = 0, τb = 1.")


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drawn]:
    """Over tau_f, six of ten seeds collapse; their ratios are huge, or known once, or never."""

    def record(config: Config) -> Record:
        one = planted.record(config)
        if config.task != "categorical-autoencoder" or config.seed > 5:
            return one
        history, taus = dict(one.history), config.estimator.to_dict()
        codes = history["perplexity"]
        history["perplexity"] = Series(codes.steps, np.ones_like(codes.values))
        ratio = 3e7 if config.seed < 3 else np.nan
        steps = np.array([100, 200])
        history["snr"] = Series(steps, np.array([np.nan, ratio * taus["tau_f"]], np.float32))
        return replace(one, history=history)

    with Store.open(tmp_path_factory.mktemp("effects") / "runs.sqlite", write=True) as store:
        store.put(map(record, RECIPES.plans["tau-f-effects"]("quick").wanted(lambda _: None)))
        yield drawn("tau-f-effects", PAPER.rows(store, "quick"))


def test_labels_of_many_decades_do_not_overlap(effects: Drawn) -> None:
    codes, ratio = effects.figure.subfigs[0].axes
    shown = visible(ratio)
    assert len(shown) >= 4
    assert all(text.startswith("$10^{") for text, _ in shown)
    boxes = sorted((low, high) for _, (low, high) in shown)
    assert all(below[1] < above[0] for below, above in pairwise(boxes))
    assert codes.get_ylim()[0] < 0.9, "a perplexity of 1 lies above the bottom line"
    (noise,) = (text for text in ratio.texts if text.get_text() == "pure noise")
    words = noise.get_window_extent()
    assert words.y0 > codes.transData.transform((0, 1.0))[1] + 4, "and below the words on the noise"


def visible(ax: Axes) -> list[tuple[str, tuple[float, float]]]:
    """The labels of the vertical axis inside its limits: text, and its lower and upper end in pixels."""
    low, high = ax.get_ylim()
    ticks = zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
    boxes = [(label.get_text(), label.get_window_extent()) for value, label in ticks if low <= value <= high]
    return [(text, (box.y0, box.y1)) for text, box in boxes]


def test_a_ratio_known_at_some_measurements_is_their_mean_and_collapsed_runs_are_said(effects: Drawn) -> None:
    line = effects.figure.subfigs[0].axes[1].containers[0].lines[0]
    taus, ratios = (np.asarray(values, float) for values in line.get_data())
    assert taus.tolist() == [0.5, 1, 2, 3]
    # Of seven seeds, three at 3e7 tau_f and four below 1: the median is the highest of these.
    assert all(0 < ratio < 1 for ratio in ratios)
    high = effects.figure.subfigs[0].axes[1].containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([top for _, (_, top) in high], 3e7 * taus, rtol=1e-6)
    assert "24 of 40 runs ended with almost all images on one code (every perplexity below 1.05)" in effects.caption
    assert (
        "n = 10 seeds per point (fewer where a value is not known: gradient signal-to-noise ratio 7)" in effects.caption
    )


def test_a_sweep_that_turns_is_not_told_by_its_ends(tmp_path: Path) -> None:
    def record(config: Config) -> Record:
        one = planted.record(config)
        if config.task != "stochastic-binary":
            return one
        norm = one.history["gradient_norm"]
        height = {0.5: 1.0, 1.0: 1.05, 2.0: 123_456.0, 3.0: 1.0}[config.estimator.to_dict()["tau_f"]]
        return replace(one, history={**one.history, "gradient_norm": Series(norm.steps, 0 * norm.values + height)})

    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(map(record, RECIPES.plans["tau-f-effects"]("quick").wanted(lambda _: None)))
        caption = FIGURES["tau-f-effects"](PAPER.rows(store, "quick")).caption
    assert "gradient norm from 1 (at 0.5) through 123,000 (at 2) to 1 (at 3)" in caption


def test_curves_say_how_many_converged_and_to_what(tmp_path: Path) -> None:
    recipes = ("catae-sequential", "catae-baselines", "confirm")
    with Store.open(planted.plant(tmp_path / "runs.sqlite", "quick", recipes)) as store:
        rows = PAPER.rows(store, "quick")
        one = drawn("autoencoder-curves", rows)
        (verdict,) = (verdict for verdict in judge(PAPER.rows(store, "quick")) if verdict.claim == "C2 convergence")
        setting = rows.setting("categorical-autoencoder", "decoupled")
    shares = {"Decoupled ST": verdict.comparisons[0].ours}
    shares |= {one.name.removeprefix("against "): one.theirs for one in verdict.comparisons}
    assert len({*shares.values()}) > 1
    for name, share in shares.items():
        assert f"{name} {round(10 * share)} of 10" in one.caption
    assert setting is not None
    ends = np.array([row.last("validation_loss") for row in setting.rows])
    assert f"Decoupled ST 10 of 10 ({ends.mean():.2f} ± {ends.std(ddof=1):.2f})" in one.caption
    assert one.figure.subfigs[0].axes[0].get_title(loc="left").endswith("rate 0.002")


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


@pytest.mark.parametrize(
    ("value", "said"), [(869_874.7, "870,000"), (999.4, "999"), (0.04783, "0.0478"), (5, "5"), (3e9, "3e+09")]
)
def test_a_number_has_three_digits(value: float, said: str) -> None:
    assert number(value) == said
