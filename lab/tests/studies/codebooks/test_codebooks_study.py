"""The study of codebooks: equal budgets, rules that find what is planted, figures from records alone."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
from dst_lab.configs import CodebookVAEConfig
from dst_lab.plans.plan import seeded, settings
from dst_lab.records import Rows
from dst_lab.report.known import STUDIES
from dst_lab.store import Record, Series, Store
from studies.codebooks.claims import arm_of, beats, judge, judge_anchor, judge_usage
from studies.codebooks.figures import FIGURES
from studies.codebooks.recipes import (
    LARGEST,
    METHODS,
    PUBLISHED,
    RECIPES,
    SEEDS,
    SIZES,
    TUNED_AT,
    anchor,
    axis_of,
    base,
    chosen_at,
    role_of,
    short,
)  # fmt: skip

METRICS = ("test_psnr_argmax", "test_psnr", "test_perplexity_argmax", "step_ms", "peak_mib")
DECIBELS = {"argmax": 2.0, "drawn": 1.0, "self": 1.95, "ibq": -3.0}
"""What is planted: how far a method lies from the others."""


def record(config, psnr: float, usage: float = 0.9, status: str = "done") -> Record:
    draw = np.random.default_rng(zlib.crc32(repr(config.to_dict()).encode()))
    values = {name: psnr + 0.01 * draw.normal(size=2) for name in METRICS}
    values |= {"validation_loss": 1 / values["test_psnr_argmax"], "test_usage_argmax": np.full(2, usage)}
    history = {name: Series(np.array([1, 2]), of.astype(np.float32)) for name, of in values.items()}
    images = np.zeros((2, 1, 8, 8), np.uint8)
    kept = {"inputs": images, "reconstructions": images}
    return Record(config=config.to_dict(), status=status, history=history, artefacts=kept)


def planted_runs():
    """Every run of the quick scale: in each search the last setting is the best one."""
    for name in METHODS:
        level, usage = 20 + DECIBELS.get(name, 0.0), 0.02 if name == "ema" else 0.9
        plan = RECIPES.plans[role_of(name)]("quick")
        best = settings(plan.base, plan.axes)[-1]
        yield from (record(run, level - (replace(run, seed=0) != best), usage) for run in plan.wanted(lambda _: None))
        for size, codes in SIZES["quick"].items():
            gain = 1.0 if size == LARGEST else 0.0
            yield from (record(replace(best, codes=codes, seed=seed), level + gain, usage) for seed in SEEDS)
        yield from (record(short("quick", size, name), 3.0) for size in SIZES["quick"])


@pytest.fixture
def planted(tmp_path):
    with Store.open(tmp_path / "planted.sqlite", write=True) as store:
        store.put(list(planted_runs()))
        yield Rows.of(store, RECIPES, "quick")


def test_every_method_has_as_many_settings_and_is_what_it_says() -> None:
    for scale, number in (("paper", 3), ("quick", 2)):
        for name, method in METHODS.items():
            _, values = axis_of(scale, name)
            assert len(values) == number
            runs = RECIPES.plans[role_of(name)](scale).wanted(lambda _: None)
            assert len(runs) == number
            assert {run.codes for run in runs} == {SIZES[scale][TUNED_AT]}
            assert {run.estimator.name for run in runs} == {method.choice.name}
            middle = base(scale, "512", name)
            # Methods differ in nothing but what defines them and what is tuned.
            same = {"dataset", "batch", "features", "width", "steps", "precision", "decay", "optimiser"}
            assert all(getattr(middle, field) == getattr(base(scale, "512", "ema"), field) for field in same)


def test_the_anchor_is_the_published_setting() -> None:
    (config,) = anchor("paper").wanted(lambda _: None)
    assert isinstance(config, CodebookVAEConfig)
    published = {"codes": 512, "features": 64, "width": 128, "batch": 32, "steps": 10_000, "lr": 3e-4, "decay": 0.99}
    assert {name: getattr(config, name) for name in published} == published
    assert (config.quantiser, config.commitment, config.precision, config.dataset) == (
        "ema",
        0.25,
        "float32",
        "cifar10",
    )


def test_every_size_takes_what_was_chosen_at_one(planted) -> None:
    wanted = planted.wanted("codebook-sizes")
    assert len(wanted) == len(METHODS) * len(SEEDS) * len(SIZES["quick"])
    assert {run.codes for run in wanted} == set(SIZES["quick"].values())
    for name in METHODS:
        found = [chosen_at(planted.chosen, "quick", size, name) for size in SIZES["quick"]]
        assert {replace(config, codes=4, seed=0) for config in found} == {replace(found[0], codes=4, seed=0)}


def test_what_is_planted_is_found(planted) -> None:
    found = {verdict.claim: verdict.verdict for verdict in judge(planted)}
    assert found["B0"] == "not tested"
    for size in SIZES["paper"]:
        assert found[f"B1 {size}"] == found[f"B2 {size}"] == found[f"B5 {size}"] == "supported"
        assert found[f"B3 {size}"] == "contradicted"
        assert found[f"B4 {size}"] == "supported"  # worse by less than the bar
    assert found["B6"] == found["B7"] == "supported"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((0.1, 0.3, 0.5), (0.2, 0.4, 0.6), "not supported"),  # more on each seed, but not than on every other
        ((0.1, 0.2, 0.3), (0.6, 0.5, 0.4), "contradicted"),
        ((0.5, 0.6, 0.7), (0.04, 0.0, 0.0), "supported"),
    ],
)
def test_the_rule_of_usage_is_what_its_words_say(ours, theirs, verdict, tmp_path) -> None:
    usage = {"argmax": ours, "ema": theirs}
    with Store.open(tmp_path / "usage.sqlite", write=True) as store:
        store.put([one for one in planted_runs() if one.config["seed"] not in SEEDS])
        rows = Rows.of(store, RECIPES, "quick")
        for name, shares in usage.items():
            config = chosen_at(rows.chosen, "quick", LARGEST, name)
            pairs = zip(seeded([config], SEEDS), shares, strict=True)
            store.put([record(run, 20.0, share) for run, share in pairs])
        found = judge_usage(Rows.of(store, RECIPES, "quick"))
    assert found.verdict == verdict
    assert found.rule.endswith("contradicted if every seed of moving means uses more than every seed of Decoupled ST.")


def test_a_method_beats_another_on_every_seed_and_by_the_bar_or_not_at_all(planted) -> None:
    ours, theirs = (arm_of(planted, "512", name).rows for name in ("argmax", "self"))
    far = arm_of(planted, "512", "ibq").rows
    assert beats(ours, far)
    assert not beats(far, ours)
    assert not beats(ours, theirs)
    assert not beats((*ours[:2], far[2]), (*far[:2], ours[2]))  # one seed of three the other way round


def test_where_every_run_diverged_nothing_is_as_good_as_anything(tmp_path) -> None:
    with Store.open(tmp_path / "lost.sqlite", write=True) as store:
        store.put([replace(r, status="diverged") if r.config["seed"] in SEEDS else r for r in planted_runs()])
        found = {one.claim: one.verdict for one in judge(Rows.of(store, RECIPES, "quick"))}
    assert {found[f"B4 {size}"] for size in SIZES["paper"]} == {"not supported"}


def test_what_lacks_is_named_and_not_judged(tmp_path) -> None:
    with Store.open(tmp_path / "empty.sqlite", write=True) as store:
        rows = Rows.of(store, RECIPES, "quick")
        assert {verdict.verdict for verdict in judge(rows)} == {"not tested"}
        assert all(draw(rows).missing for draw in FIGURES.values())


@pytest.mark.parametrize(("nmse", "verdict"), [(0.0561, "supported"), (0.062, "not supported")])
def test_the_anchor_is_judged_by_its_two_numbers(nmse, verdict, tmp_path) -> None:
    (config,) = anchor("paper").wanted(lambda _: None)
    values = {"validation_loss": 0.06, "train_nmse": nmse, "batch_perplexity": PUBLISHED["batch_perplexity"]}
    history = {name: Series(np.array([1]), np.array([value], np.float32)) for name, value in values.items()}
    with Store.open(tmp_path / "anchor.sqlite", write=True) as store:
        store.put([Record(config=config.to_dict(), status="done", history=history)])
        assert judge_anchor(Rows.of(store, RECIPES, "paper")).verdict == verdict


def test_figures_show_every_method(planted) -> None:
    assert STUDIES["codebooks"].figures is FIGURES
    for name, parts in (("quality", 2), ("cost", 2)):
        drawn = FIGURES[name](planted)
        assert not drawn.empty
        assert drawn.panels == parts
        labels = {line.get_label() for line in drawn.figure.axes[0].lines}
        assert {method.label for method in METHODS.values()} <= labels
    assert len(FIGURES["reconstructions"](planted).figure.axes[0].texts) == len(METHODS) + 1


def test_reconstructions_are_those_of_the_size_at_which_most_methods_have_theirs(tmp_path) -> None:
    """A lean copy may have left them out of some runs of the largest."""
    largest = SIZES["quick"][LARGEST]
    lean = lambda run: run.config["codes"] == largest and run.config["quantiser"] != "fsq"  # noqa: E731
    runs = [replace(run, artefacts={}) if lean(run) else run for run in planted_runs()]
    with Store.open(tmp_path / "lean.sqlite", write=True) as store:
        store.put(runs)
        drawn = FIGURES["reconstructions"](Rows.of(store, RECIPES, "quick"))
    assert drawn.title == f"Reconstructions through {sorted(SIZES['quick'].values())[-2]} codes"
    assert len(drawn.figure.axes[0].texts) == len(METHODS) + 1
