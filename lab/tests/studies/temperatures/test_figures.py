"""Figures and tables of self-set temperatures, on invented runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dst_lab.configs import Config, StochasticBinaryConfig
from dst_lab.figures import draw
from dst_lab.plans.plan import with_value
from dst_lab.records import Rows, pursue
from dst_lab.report import page
from dst_lab.store import Record, Series, Store, run_id
from planted import PROVENANCE
from studies import TEMPERATURES
from studies.temperatures.ablation import tables
from studies.temperatures.recipes import RECIPES
from studies.temperatures.variants import EXPLORED, START, explored

STEPS = np.array([10, 20, 30, 40], dtype=np.int64)


def loss(config: Config) -> float:
    level = 120.0 if config.task == "categorical-autoencoder" else 0.3
    return level * (1 + config.lr) + 0.001 * config.seed


def record(config: Config) -> Record:
    layers = {"stochastic-binary": 2, "logic-gates": 4}.get(config.task, 1)
    history = {"validation_loss": np.array([1.3, 1.1, 1.0, 1.05]) * loss(config), "train_loss": np.ones(4)}
    history["validation_accuracy_argmax"] = np.array([0.1, 0.2, 0.3, 0.4])
    if config.estimator.rules:
        by_layer = np.arange(1, 5)[:, None] * np.arange(1, 1 + layers)
        history |= {"tau_f": 0.01 * by_layer, "tau_b": (0.1 * by_layer)[:, 0] if layers == 1 else 0.1 * by_layer}
    series = {name: Series(STEPS, values.astype(np.float32)) for name, values in history.items()}
    return Record(config=config.to_dict(), status="done", history=series, artefacts={}, provenance=PROVENANCE)


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for recipe in RECIPES.plans.values():
            pursue(recipe("paper"), store, lambda missing, _: bool(store.put(map(record, missing))) or True)
        yield TEMPERATURES.rows(store, "paper")


def test_loss_against_the_learning_rate(rows: Rows) -> None:
    drawn = draw(TEMPERATURES.figures, rows)["rates"]
    assert not drawn.missing
    autoencoder, network = (ax for part in drawn.figure.subfigs for ax in part.axes)
    names = [text.get_text() for text in autoencoder.get_legend().get_texts()]
    assert names == [
        "the rule", "the rule, steps not told", "the best constants at each rate, their search's seeds",
        "the tuned constants",
    ]  # fmt: skip
    rule = autoencoder.containers[0].lines[0]
    assert rule.get_xdata().tolist() == [3e-4, 5e-4, 7e-4, 1e-3, 2e-3]
    expected = [120 * (1 + lr) + 0.001 * 2004.5 for lr in rule.get_xdata()]
    assert rule.get_ydata().tolist() == pytest.approx(expected, rel=1e-6)
    assert len(network.containers[1].lines[0].get_xdata()) == 3
    assert ". Autoencoder: the rule 122.0405 ± 0.0030 at 0.0003 (n = 10)" in drawn.caption


def test_temperatures_by_layer(rows: Rows) -> None:
    drawn = draw(TEMPERATURES.figures, rows)["courses"]
    assert not drawn.missing
    for name, ax in zip(("tau_f", "tau_b"), (ax for part in drawn.figure.subfigs for ax in part.axes), strict=True):
        assert len(ax.lines) == 1 + 2 + 4
        factor = {"tau_f": 0.01, "tau_b": 0.1}[name]
        assert ax.lines[2].get_ydata().tolist() == pytest.approx([2 * factor * n for n in range(1, 5)])


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.sqlite", write=True) as store:
        rows = TEMPERATURES.rows(store, "paper")
        drawn = draw(TEMPERATURES.figures, rows)
        assert all(one.empty and one.missing for one in drawn.values())
        assert not any(one.cells(rows) for one in tables("paper"))


def test_variants_of_the_rule(rows: Rows) -> None:
    by_name = {one.name: one for one in tables("paper")}
    cells = by_name["constants-network"].cells(rows)
    assert list(cells) == list(EXPLORED[StochasticBinaryConfig])
    assert cells["as it was"][0] == "0.4021 ± 0.0016 (n = 5)"
    for name, config in explored(StochasticBinaryConfig, "paper").items():
        constants = dict(dict(config.estimator.temperatures)["tau_b"].constants)
        assert constants == {**START, **EXPLORED[StochasticBinaryConfig][name]}
    html = page(TEMPERATURES, rows, draw(TEMPERATURES.figures, rows))
    assert "ceiling 0.3, low 0, share 1/10" in html
    assert "<i>τ</i><sub>f</sub> by the rule, <i>τ</i><sub>b</sub> 0.5" in html
    assert 'data-name="parts-autoencoder"' in html, "every table can be taken away"


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_every_table_shows_runs_that_a_recipe_trains(scale: str) -> None:
    trained = {
        run_id(config.to_dict())
        for make in RECIPES.plans.values()
        for config in make(scale).wanted(lambda _: None)
    }  # fmt: skip
    for table in tables(scale):
        places = [place for line in table.lines.values() for place in line if place]
        shown = {run_id(with_value(config, "seed", seed).to_dict()) for config, seeds in places for seed in seeds}
        assert shown, table.name
        assert shown <= trained, table.name
        assert all(len(line) == len(table.head) - 1 for line in table.lines.values()), table.name


def test_the_mark_of_convergence_is_that_of_the_usual_codes(tmp_path: Path) -> None:
    """A loss above it says nothing of other latents and other images."""

    def collapsed(config: Config) -> Record:
        one = record(config)
        return replace(one, history={**one.history, "validation_loss": Series(STEPS, np.full(4, 205, np.float32))})

    by_name = {one.name: one for one in tables("paper")}
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for name in ("self-parts", "self-shapes"):
            store.put(map(collapsed, RECIPES.plans[name]("paper").wanted(lambda _: None)))
        rows = TEMPERATURES.rows(store, "paper")
        assert by_name["parts-autoencoder"].cells(rows)["by confidence"] == ["205 ± 0 (n = 5), 5 not converged"] * 2
        assert by_name["parts-network"].cells(rows)["by confidence"] == ["205 ± 0 (n = 5)"]
        assert all(cells[0] == "205 ± 0 (n = 5)" for cells in by_name["shapes"].cells(rows).values())


def test_a_loud_draw_is_shown_by_argmax_too(tmp_path: Path) -> None:
    """Its own noise is in the loss of training: constants beside the rule looked worse than the networks they made."""

    def quieter(config: Config) -> Record:
        one = record(config)
        return replace(
            one, history={**one.history, "validation_loss_argmax": Series(STEPS, np.full(4, 90, np.float32))}
        )

    by_name = {one.name: one for one in tables("paper")}
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(map(quieter, RECIPES.plans["self-parts"]("paper").wanted(lambda _: None)))
        store.put(map(record, RECIPES.plans["self-shapes"]("paper").wanted(lambda _: None)))
        rows = TEMPERATURES.rows(store, "paper")
        assert by_name["parts-autoencoder"].cells(rows)["by confidence"][0].startswith("120.16")
        assert by_name["parts-autoencoder-argmax"].cells(rows)["by confidence"] == ["90 ± 0 (n = 5)"] * 2
        assert by_name["parts-autoencoder-argmax"].unit == "validation loss (argmax) (nats)"
        assert by_name["shapes-argmax"].cells(rows) == {}, "what was not measured is not shown"


def test_what_another_task_has_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """The panel of the autoencoder asked for the runs of the binary network, which were all there."""
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(map(record, RECIPES.plans["self-network"]("quick").wanted(lambda _: None)))
        drawn = draw(TEMPERATURES.figures, TEMPERATURES.rows(store, "quick"))["rates"]
    assert "9 of 9 runs of self-autoencoder" in drawn.missing
    assert not [text for text in drawn.missing if "self-network" in text]
