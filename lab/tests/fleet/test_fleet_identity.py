"""A run is itself, bit for bit on a CPU, in any company; and so are the random numbers that belong to it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet, threads
from dst_lab.fleet.streams import Streams, Use, _of_uniform
from dst_lab.runs import Config
from dst_lab.store import Record
from dst_lab.tasks import TASKS
from small import SMALL

TRAINED = ("stochastic-binary", "categorical-autoencoder", "logic-gates", "logic-conv", "bias-variance")
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


@pytest.mark.parametrize("name", TRAINED)
def test_a_run_is_itself_in_any_company(name: str) -> None:
    mine = config(name, seed=7, lr=2e-3)
    others = [config(name, seed=i % 9, lr=(1 + i % 3) * 1e-3, estimator=CHOICES[i % 3]) for i in range(15)]
    (alone,) = train([mine]).values()
    beside_one = train([mine, others[0]])[alone.run_id]
    last_of_16 = train([*others, mine])[alone.run_id]
    in_the_middle = train([*others[:5], mine, *others[5:7]])[alone.run_id]
    assert alone.history["train_loss"].values.shape == (2,)
    for other in (beside_one, last_of_16, in_the_middle):
        assert_same(alone, other)


@pytest.mark.parametrize("name", TRAINED)
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


CPU = torch.device("cpu")
BIG = 2**63 - 1


def alone(seed: int, use: Use = Use.TRAIN, step: int = 5, site: int = 2) -> torch.Tensor:
    return Streams([seed], CPU).noise("uniform", use, step, site, (100, 33))[0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_draws_the_same_in_any_fleet(count: int) -> None:
    with threads(count):
        many = Streams([3, 1, BIG, 3, 8], CPU).noise("uniform", Use.TRAIN, 5, 2, (100, 33))
    assert many.shape == (5, 100, 33)
    assert many.dtype == torch.float32
    for row, seed in enumerate([3, 1, BIG, 3, 8]):
        assert torch.equal(many[row], alone(seed))


def test_seeds_uses_steps_and_sites_have_numbers_of_their_own() -> None:
    draws = [alone(8), alone(9), alone(8 + 2**32), *(alone(8, use=use) for use in Use if use != Use.TRAIN)]
    draws += [alone(8, step=step) for step in (0, 1, 4, 6, 5 + 2**32)]
    draws += [alone(8, site=site) for site in (0, 1, 3, 1000, 2002)]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            # Of 3,300 pairs, equal ones are expected 3,300 / 2**24 times.
            assert (one == other).sum() <= 2


def test_a_long_draw_does_not_run_into_the_next_site_or_step() -> None:
    long = set(Streams([1], CPU).noise("uniform", Use.TRAIN, 0, 0, (40_000,))[0].tolist())
    for step, site in ((0, 1), (1, 0)):
        next_one = Streams([1], CPU).noise("uniform", Use.TRAIN, step, site, (1000,))[0].tolist()
        # Each of 1,000 is among 40,000 of 2**24 values by chance: 2.4 are expected, with a standard deviation of 1.5.
        assert len(long & set(next_one)) <= 10


def test_each_seed_and_epoch_has_its_own_order_of_the_images() -> None:
    orders = Streams([4, 2, 4], CPU).order(3, 1280)
    assert orders.shape == (2, 1280)
    for row in orders:
        assert row.sort().values.tolist() == list(range(1280))
    two, four = orders
    assert torch.equal(four, Streams([4], CPU).order(3, 1280)[0])
    for other in (two, Streams([4], CPU).order(2, 1280)[0], torch.arange(1280)):
        # Fixed points of a random permutation: 1 is expected, with a standard deviation of 1.
        assert (four == other).sum() <= 8


@pytest.mark.parametrize("kind", ["gumbel", "logistic"])
def test_noise_is_finite_at_both_ends_of_the_uniform_draw(kind: str) -> None:
    noise = _of_uniform(kind, torch.tensor([0.0, 2.0**-24, 1 - 2.0**-24]))
    assert noise.isfinite().all()
    assert (noise.diff() > 0).all()
