"""Which runs a map is of."""

from pathlib import Path

import numpy as np
from dst_lab.estimators import Choice
from dst_lab.figures import draw
from dst_lab.figures.sweeps import searched
from dst_lab.plans import Grid, Plan, Recipes
from dst_lab.plans.plan import Several
from dst_lab.records import Rows
from dst_lab.store import Record, Series, Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from studies import PAPER

TASK = StochasticBinaryConfig.task
BASE = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.5))
OTHER = StochasticBinaryConfig(estimator=Choice.make("softmax_ste", tau=0.5))


def record(config: StochasticBinaryConfig, loss: float) -> Record:
    history = {"validation_loss": Series(np.array([1]), np.array([loss]))}
    return Record(config=config.to_dict(), status="done", history=history)


def of_both(_: str) -> Plan:
    """One recipe that searches for two estimators."""
    axes = (("tau_f", (0.5, 1.0)), ("tau_b", (0.5, 1.0)))
    return Several((Grid(BASE, axes, (0, 1)), Grid(OTHER, (("tau", (0.5, 1.0, 2.0)),), (0, 1))))


def test_a_map_is_of_one_estimator_where_a_recipe_searches_for_several(tmp_path: Path) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        runs = of_both("quick").wanted(lambda _: None)
        store.put([record(run, 1.0 if run.estimator.name == "decoupled" else 5.0) for run in runs])
        rows = Rows.of(store, Recipes({"both": of_both}, searches=("both",)), "quick")
        found = searched(rows, TASK, "decoupled").cells("validation_loss")
    assert {at: len(members) for at, members in found.items()} == dict.fromkeys(
        [(0.5, 0.5), (0.5, 1.0), (1.0, 0.5), (1.0, 1.0)], 2
    )
    assert {row.run.estimator for members in found.values() for row in members} == {"decoupled"}


def test_what_confirms_is_named_after_the_searches(tmp_path: Path) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        found = draw({"seeds": PAPER.figures["seeds"]}, PAPER.rows(store, "quick"))["seeds"].recipes
    assert found[-1] == "confirm"
    assert {"sbn-grid", "catae-sequential", "logic-sequential"} <= {*found}
