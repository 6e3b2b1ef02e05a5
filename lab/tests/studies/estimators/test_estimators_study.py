"""The study of estimators: equal budgets, rules that find what is planted, and every arm really trained once."""

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.figures import draw
from dst_lab.plans.plan import settings
from dst_lab.records import Rows
from dst_lab.report.known import STUDIES, recipes
from dst_lab.store import Record, Series, Store
from studies.estimators import tables
from studies.estimators.claims import judge, judge_anchors, places
from studies.estimators.figures import FIGURES
from studies.estimators.recipes import (
    PAPER_TASKS,
    PUBLISHED,
    RECIPES,
    SHAPES,
    TUNED,
    anchor_plans,
    base,
    role_of,
    role_on,
)

METRICS = ("validation_loss", "train_loss", "train_set_loss", "test_loss", "test_bound", "perplexity")
NATS = {"st": 0.0, "decoupled": -3.0, "gumbel": 1.0, "gumbel-rao": -2.0, "gapped": 2.0, "reinmax": -6.0}
NATS["reinmax-decoupled"] = -5.5
"""What is planted: how far an arm lies from straight-through."""


def record(config, value: float, status: str = "done") -> Record:
    draw = np.random.default_rng(zlib.crc32(repr(config.to_dict()).encode()))
    values = value + np.array([5.0, 0.0]) + 0.01 * draw.normal(size=2)
    history = {name: Series(np.array([1, 2]), values.astype(np.float32)) for name in METRICS}
    return Record(config=config.to_dict(), status=status, history={} if status != "done" else history)


@pytest.fixture
def planted(tmp_path):
    """Every search and confirmation of the quick scale, without training."""
    path = tmp_path / "planted.sqlite"
    with Store.open(path, write=True) as store:
        for shape in SHAPES["quick"]:
            for arm in TUNED:
                plan = RECIPES.plans[role_of(shape, arm)]("quick")
                runs = plan.wanted(lambda _: None)
                # The last setting is the best one; fresh seeds of it are what the claims are judged on.
                found = settings(plan.base, plan.axes)[-1]
                fresh = [replace(found, seed=seed) for seed in range(1000, 1010)]
                worse = [record(run, 100 + NATS[arm] + (replace(run, seed=0) != found)) for run in runs]
                store.put([*worse, *(record(run, 100 + NATS[arm]) for run in fresh)])
        yield Rows.of(store, RECIPES, "quick")


@pytest.mark.parametrize(("scale", "number"), [("paper", 30), ("quick", 4)])
def test_every_arm_has_as_many_settings(scale, number) -> None:
    for shape in SHAPES[scale]:
        for arm in TUNED:
            plan = RECIPES.plans[role_of(shape, arm)](scale)
            wanted = plan.wanted(lambda _: None)
            assert len({replace(run, seed=0) for run in wanted}) == number
            assert (wanted[0].latents, wanted[0].classes) == SHAPES[scale][shape]
            assert wanted[0].estimator.name == TUNED[arm].estimator


@pytest.mark.parametrize("place", list(PAPER_TASKS))
def test_every_arm_has_as_many_settings_on_the_papers_tasks(place) -> None:
    for arm in TUNED:
        wanted = RECIPES.plans[role_on(place, arm)]("paper").wanted(lambda _: None)
        assert len({replace(run, seed=0) for run in wanted}) == len(wanted) == 18
        for name, value in PAPER_TASKS[place].short.items():
            assert {getattr(run, name) for run in wanted} == {value}
        assert {run.estimator.name for run in wanted} == {TUNED[arm].estimator}


def test_the_paper_scale_is_the_published_setting() -> None:
    """Whole for the published numbers; the searches train for 30 epochs, and hold images out."""
    anchors = RECIPES.plans["vae-anchors"]("paper").wanted(lambda _: None)
    searched = [RECIPES.plans[role_of("32x16", arm)]("paper").wanted(lambda _: None)[0] for arm in TUNED]
    assert len(anchors) == 4 * 3 * 3
    for config in anchors + searched:
        assert (config.hidden, config.batch, config.pixels) == ((512, 256), 200, "grey")
        assert (config.optimiser, config.weight_decay, config.lr_schedule) == ("adamw", 0.01, "cosine")
    assert {(c.dataset, c.epochs, c.warmup, c.bound_samples) for c in anchors} == {("mnist-whole", 500, 10.0, 100)}
    assert {(c.dataset, c.epochs, c.warmup, c.bound_samples) for c in searched} == {("mnist", 30, 3.0, 20)}
    assert {config.lr for config in anchors if config.estimator.name == "softmax_ste"} == {3.1623e-3}
    # 60,000 images are 300 steps per epoch, and are evaluated every 25 epochs.
    assert {config.steps_of(60_000) for config in anchors} == {(150_000, 7_500)}


def test_it_is_known_by_its_name() -> None:
    assert STUDIES["estimators"].recipes is RECIPES
    assert {name for name, (study, _) in recipes().items() if study.name == "estimators"} == set(RECIPES.plans)


def test_the_rules_find_what_is_planted(planted) -> None:
    """Decoupled ST is 3 nats better than ST and 3 worse than ReinMax; decoupled ReinMax half a nat worse."""
    verdicts = {verdict.claim: verdict for verdict in judge(planted)}
    expected = {"E1": "supported", "E2": "contradicted", "E3": "contradicted", "E4": "contradicted"}
    for shape in SHAPES["paper"]:
        assert {claim: verdicts[f"{claim} {shape}"].verdict for claim in expected} == expected
        (first,) = (one for one in verdicts[f"E1 {shape}"].comparisons if one.judged)
        assert first.difference == pytest.approx(-3.0, abs=0.05)
        assert first.n == 10
    assert verdicts["E0"].verdict == "not tested"


def test_its_page_shows_verdicts_and_chosen_settings(planted, cli) -> None:
    path = planted.store.path
    planted.store.close()
    ended = cli("report", "--study", "estimators", "--scale", "quick", "--store", path, "--out", "page.html")
    assert ended.code == 0, ended.err
    page = Path("page.html").read_text()
    assert "Straight-through estimators side by side" in page
    assert "A backward temperature of its own helps straight-through, 32 x 16 codes" in page
    assert "ReinMax on 8 x 64 codes" in page


def test_its_tables_have_every_arm_and_the_lowest_in_bold(planted) -> None:
    found = tables.arms(planted, places()[0])
    assert list(found) == list(TUNED)
    for shape in SHAPES["paper"]:
        assert [arm for arm in found if found[arm][shape].first] == ["reinmax"]
        cell = found["decoupled"][shape]
        assert (cell.n, cell.diverged, cell.seeds) == (10, 0, "confirmation")
        assert cell.setting == "tau_f 1, tau_b 1.4, rate 0.0032"
        assert float(cell.values["validation_loss"].partition(" ")[0]) == pytest.approx(97.0, abs=0.05)
    # At quick scale the published settings are among those that were searched.
    assert tables.anchors(planted)["ST"]["8x64"][1:] == (111.40, 1)


def test_its_figures_draw_what_is_there(planted) -> None:
    """A map whose lowest cell is known, points of bias and variance, and what is missing where nothing is there."""
    path = planted.store.path
    planted.store.close()
    with Store.open(path, write=True) as store:
        for recipe in ("vae-maps", "estimator-bias"):
            for run in RECIPES.plans[recipe]("quick").wanted(lambda _: None):
                taus = run.estimator.to_dict()
                value = 90.0 + abs(taus.get("tau_f", 1.0) - 0.7) + abs(taus.get("tau_b", 1.0) - 2.0)
                made = record(run, value)
                extra = {
                    name: Series(np.array([1]), np.array([0.5])) for name in ("bias_rescaled", "variance_rescaled")
                }
                store.put([replace(made, history={**made.history, **extra})])
        rows = Rows.of(store, RECIPES, "quick")
        drawn = draw(FIGURES, rows)
        assert not any(one.missing or one.empty for one in drawn.values())
        # The search had trained some cells of the map before, without the tilt: they stay as they were.
        assert "Decoupled ST is lowest, 90.01 nats, at τf = 0.7, τb = 2" in drawn["temperature-maps"].caption
        assert "128 x 4 codes: ReinMax 9" in drawn["elbo-curves"].caption
        assert [line.get_label() for line in drawn["bias-against-variance"].figure.subfigs[0].axes[0].lines] == [
            "Softmax STE", "Decoupled ST", "ST Gumbel-Softmax", "Gumbel-Rao", "Gapped ST", "ReinMax",
        ]  # fmt: skip
    with Store.open(path.parent / "empty.sqlite", write=True) as store:
        assert all(one.empty for one in draw(FIGURES, Rows.of(store, RECIPES, "quick")).values())


def test_nothing_is_judged_where_runs_lack(tmp_path) -> None:
    with Store.open(tmp_path / "empty.sqlite", write=True) as store:
        verdicts = judge(Rows.of(store, RECIPES, "quick"))
    assert {verdict.verdict for verdict in verdicts} == {"not tested"}
    assert all(verdict.missing for verdict in verdicts)


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(0.9, "supported"), (1.1, "not supported"), (float("inf"), "not supported"), (None, "not tested")],
)
def test_the_published_numbers_are_met_within_a_nat_or_not(tmp_path, off, verdict) -> None:
    """All as published, but ReinMax on 8 x 64, which is off, diverged, or not there."""
    with Store.open(tmp_path / "anchors.sqlite", write=True) as store:
        for shape in SHAPES["paper"]:
            for name, plan in anchor_plans("paper", shape).items():
                special = (name, shape) == ("ReinMax", "8x64")
                if special and off is None:
                    continue
                value = PUBLISHED[name].at(shape)[1] + (off if special else 0.0)
                status = "done" if value < float("inf") else "diverged"
                store.put([record(run, value, status) for run in plan.wanted(lambda _: None)])
        found = judge_anchors(Rows.of(store, RECIPES, "paper"))
    assert found.verdict == verdict
    assert len(found.notes) == (11 if off is None else 12)


@pytest.mark.parametrize("arm", list(TUNED))
def test_every_arm_trains(arm, tmp_path) -> None:
    config = base("quick", "8x64", TUNED[arm].choice(), epochs=1, hidden=(16,), bound_samples=2)
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        LocalEngine(torch.device("cpu")).train([config, replace(config, seed=1)], store, Job())
        assert [run.status for run in store.runs()] == ["done", "done"]
        history = store.history(store.runs()[0].id)
        assert history["validation_loss"].values[-1] < 64 * np.log(2) + 4 * np.log(16)
