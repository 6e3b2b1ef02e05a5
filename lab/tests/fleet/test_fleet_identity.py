"""A run is itself, bit for bit on a CPU: alone, in a fleet of 2 or 64, in another order, beside one that diverges."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.runs import Config
from dst_lab.store import Record
from dst_lab.tasks import TASKS

SMALL: dict[str, dict[str, Any]] = {
    "stochastic-binary": {"epochs": 2, "diagnose_every": 1},
    "categorical-autoencoder": {"epochs": 2, "snr_every": 2, "snr_passes": 4},
    "logic-gates": {"width": 320, "steps": 12, "evaluate_every": 6},
    "bias-variance": {"steps": 12, "evaluate_every": 6},
}
CHOICES = [
    Choice.make("decoupled", tau_f="1.0:0.25:cosine", tau_b=0.7),
    Choice.make("decoupled", tau_f=0.0, tau_b=0.5),
    Choice.make("decoupled", tau_f=2.0, tau_b=1.5),
]


def config(task: str, **fields: Any) -> Config:
    return TASKS[task].config_type(**{"estimator": CHOICES[0], **SMALL[task], **fields})


def train(configs: list[Config]) -> dict[str, Record]:
    task = TASKS[configs[0].task](configs[0], None, torch.device("cpu"))
    return {record.run_id: record for record in Fleet(task, configs).train()}


def assert_same(one: Record, other: Record) -> None:
    assert one.history.keys() == other.history.keys()
    for name, series in one.history.items():
        assert np.array_equal(series.steps, other.history[name].steps), name
        assert np.array_equal(series.values, other.history[name].values, equal_nan=True), name
    for name, array in one.artefacts.items():
        assert np.array_equal(array, other.artefacts[name]), name


@pytest.mark.parametrize("name", list(SMALL))
def test_a_run_is_itself_in_any_company(name: str) -> None:
    mine = config(name, seed=7, lr=2e-3)
    others = [config(name, seed=i % 9, lr=(1 + i % 3) * 1e-3, estimator=CHOICES[i % 3]) for i in range(63)]
    (alone,) = train([mine]).values()
    beside_one = train([mine, others[0]])[alone.run_id]
    last_of_64 = train([*others, mine])[alone.run_id]
    in_the_middle = train([*others[:5], mine, *others[5:7]])[alone.run_id]
    assert alone.history["train_loss"].values.shape == (2,)
    for other in (beside_one, last_of_64, in_the_middle):
        assert_same(alone, other)


@pytest.mark.parametrize("name", list(SMALL))
def test_a_run_that_diverges_harms_no_other(name: str) -> None:
    mine = config(name, seed=7)
    neighbour = config(name, seed=8)
    wild = replace(mine, lr=1e38, seed=9)
    without = train([mine, neighbour])
    records = train([mine, wild, neighbour])
    for run in without:
        assert_same(without[run], records[run])
        assert records[run].status == "done"
    (diverged,) = (record for record in records.values() if record.run_id not in without)
    assert diverged.status == "diverged"
    assert diverged.detail["step"] >= 2
    assert diverged.detail["reason"] == "the loss is not finite"
    assert all(series.steps.max() < diverged.detail["step"] for series in diverged.history.values())
    assert not diverged.artefacts


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["1 thread", "2 threads"], autouse=True)
def number_of_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    with threads(request.param):
        yield
