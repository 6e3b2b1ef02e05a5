"""A fleet without those it gave up goes on as if they were still there, bit for bit on a CPU, and records them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.engines import chunk
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.fleet.saved.checkpoint import Checkpoint
from dst_lab.plans import Halving
from dst_lab.runs import Config
from dst_lab.store import Record, Store, run_id
from dst_lab.tasks import TASKS
from dst_lab.train import train

CHOICES = [
    Choice.make("decoupled", tau_f="1.0:0.25:cosine", tau_b=0.7),
    Choice.make("decoupled", tau_f=0.3, tau_b=0.5),
    Choice.make("decoupled", tau_f=2.0, tau_b=1.5),
    Choice.make("decoupled", tau_f=0.0, tau_b=1.0),
]
LONGER: dict[str, dict[str, Any]] = {
    "stochastic-binary": {"epochs": 4},
    "categorical-autoencoder": {"epochs": 4},
    "logic-gates": {"steps": 12, "evaluate_every": 3},
    "bias-variance": {"steps": 12, "evaluate_every": 3},
    "categorical-vae": {"epochs": 4},
    "polynomial": {"steps": 12, "evaluate_every": 3},
}


@pytest.fixture
def configs(small, name) -> list[Config]:
    """Four settings with two seeds each and four evaluations: halved to two, then to one."""
    return [
        small(name, **LONGER[name], estimator=choice, seed=seed, lr=(1 + i) * 1e-3)
        for i, choice in enumerate(CHOICES)
        for seed in (3, 5)
    ]


def fleet(configs: Sequence[Config], checkpoint: Checkpoint | None = None) -> Fleet:
    return Fleet(TASKS[configs[0].task](configs[0], None, torch.device("cpu")), configs, checkpoint)


def assert_beginning(part: Record, whole: Record, step: int) -> None:
    """The first is what the second was until that step."""
    for metric, series in whole.history.items():
        until = series.steps <= step
        if until.any():
            assert np.array_equal(part.history[metric].steps, series.steps[until]), metric
            assert np.array_equal(part.history[metric].values, series.values[until], equal_nan=True), metric
        else:
            assert metric not in part.history


def test_survivors_do_not_notice_and_the_others_are_recorded_as_they_were(configs, content) -> None:
    whole = fleet(configs).train()
    halved_fleet = fleet(configs)
    halved = halved_fleet.train(prune=Halving())
    assert [record.status for record in whole] == ["done"] * 8
    assert sorted(record.status for record in halved) == ["done"] * 2 + ["stopped"] * 6
    assert (halved_fleet.runs, halved_fleet.wanted, len(halved_fleet.members)) == (2, 2, 8)
    steps = halved_fleet.steps
    ended = []
    for part, all_of_it in zip(halved, whole, strict=True):
        if part.status == "done":
            assert content(part) == content(all_of_it)
            continue
        ended.append(part.detail["step"])
        assert part.detail == {"step": ended[-1], "of": steps, "reason": "other settings did better"}
        assert not part.artefacts
        assert_beginning(part, all_of_it, ended[-1])
    assert sorted(ended) == [steps // 4] * 4 + [steps // 2] * 2
    # Those that went on are the best at each moment, by the mean over seeds.
    lowest = [record.history["validation_loss"].values for record in whole]
    at_quarter = [float(lowest[2 * i][0]) + float(lowest[2 * i + 1][0]) for i in range(4)]
    first_out = {2 * i + j for i in np.argsort(at_quarter, kind="stable")[2:] for j in (0, 1)}
    assert {i for i, part in enumerate(halved) if part.detail.get("step") == steps // 4} == first_out


def test_killed_at_any_moment_it_goes_on_the_same(configs, content, tmp_path) -> None:
    whole = [content(record) for record in fleet(configs).train(prune=Halving())]
    steps = fleet(configs).steps
    path = tmp_path / "one.npz"
    for step in (1, steps // 4 - 1, steps // 4, steps // 4 + 1, steps // 2, steps // 2 + 1, steps):
        begun = fleet(configs, Checkpoint(path))
        with pytest.raises(TrainingStoppedError):
            begun.train(stop=lambda begun=begun, step=step: begun.step == step, prune=Halving())
        resumed = fleet(configs, Checkpoint(path))
        assert resumed.step == step
        assert len(resumed.alive) == (8 if step < steps // 4 else 4 if step < steps // 2 else 2)
    assert [content(record) for record in fleet(configs, Checkpoint(path)).train(prune=Halving())] == whole


def test_down_to_a_lone_run(small, content) -> None:
    configs = [small("stochastic-binary", epochs=4, estimator=choice, seed=3) for choice in CHOICES[:2]]
    whole = {record.run_id: content(record) for record in fleet(configs).train()}
    left, other = sorted(fleet(configs).train(prune=Halving()), key=lambda record: record.status)
    assert (left.status, other.status) == ("done", "stopped")
    assert content(left) == whole[left.run_id]


def test_a_run_that_diverged_before_it_was_given_up_is_recorded_as_such(small) -> None:
    mine = [small("stochastic-binary", epochs=4, estimator=choice, seed=3) for choice in CHOICES[:3]]
    wild = replace(mine[0], lr=1e38)
    records = fleet([wild, *mine]).train(prune=Halving())
    assert records[0].status == "diverged"
    assert 0 < records[0].detail["step"] <= 20
    assert sorted(record.status for record in records[1:]) == ["done", "stopped", "stopped"]


def test_the_engine_records_it_whole_and_trains_nothing_again(small, tmp_path, rows) -> None:
    configs = [small("stochastic-binary", epochs=4, estimator=choice, seed=s) for choice in CHOICES for s in (3, 5)]
    path, folder = tmp_path / "a.sqlite", tmp_path / "a.sqlite.checkpoints"
    engine = LocalEngine(torch.device("cpu"))
    steps = iter(range(1000))
    with Store.open(path, write=True) as store:
        with pytest.raises(TrainingStoppedError):
            train(configs, engine, store, Job(checkpoint_seconds=0.0, stop=lambda: next(steps) == 45, prune=Halving()))
        assert store.runs() == []
        outcome = train(configs, engine, store, Job(checkpoint_seconds=0.0, prune=Halving()))
        assert (outcome.wanted, outcome.trained, outcome.stopped) == (8, 2, 6)
        assert sorted(run.status for run in store.runs()) == ["done"] * 2 + ["stopped"] * 6
        assert not folder.exists()
    with Store.open(tmp_path / "b.sqlite", write=True) as store:
        train(configs, engine, store, Job(prune=Halving()))
    assert rows(path) == rows(tmp_path / "b.sqlite")
    # A plan that stops nothing early wants the six again, whole, and they take the parts' place.
    with Store.open(path, write=True) as store:
        assert train(configs, engine, store, Job(checkpoint_seconds=0.0)).trained == 6
        assert [run.status for run in store.runs()] == ["done"] * 8


def test_a_setting_is_never_cut_in_two(small, tmp_path) -> None:
    """Chunks of at most five runs, settings of two: four and four."""
    configs = [small("stochastic-binary", epochs=4, estimator=choice, seed=s) for choice in CHOICES for s in (3, 5)]
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        train(configs, LocalEngine(torch.device("cpu")), store, Job(fleet=5, prune=Halving()))
        ends = {run.id: run.status for run in store.runs()}
    pairs = [{ends[run_id(config.to_dict())] for config in configs[at : at + 2]} for at in range(0, 8, 2)]
    assert all(len(pair) == 1 for pair in pairs)
    assert sorted(pair.pop() for pair in pairs) == ["done", "done", "stopped", "stopped"]
    assert chunk.halves(configs[:6], together=True) == [configs[:2], configs[2:6]]
    assert chunk.halves(configs[:2], together=True) == [configs[:1], configs[1:2]]


def test_what_a_search_gave_up_is_trained_whole_where_no_search_is_on(small, tmp_path, rows) -> None:
    configs = [small("stochastic-binary", epochs=4, estimator=choice, seed=3) for choice in CHOICES]
    engine = LocalEngine(torch.device("cpu"))
    steps = iter(range(1000))
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        with pytest.raises(TrainingStoppedError):
            train(configs, engine, store, Job(checkpoint_seconds=0.0, stop=lambda: next(steps) == 50, prune=Halving()))
        outcome = train(configs, engine, store, Job(checkpoint_seconds=0.0))
        assert (outcome.trained, outcome.stopped) == (4, 0)
    with Store.open(tmp_path / "b.sqlite", write=True) as store:
        train(configs, engine, store, Job())
    assert rows(tmp_path / "a.sqlite") == rows(tmp_path / "b.sqlite")


@pytest.mark.gpu
def test_on_cuda_survivors_go_on_to_rounding(configs) -> None:
    """The captured step is captured anew. Two evaluations: longer runs part ways, as choices flip by rounding."""
    task = TASKS[configs[0].task](configs[0], None, torch.device("cuda"))
    whole = Fleet(task, configs).train()
    fleet = Fleet(task, configs)
    halved = fleet.train(prune=lambda before, *_: [2, 7] if before == 0 else None)
    assert (fleet.runs, fleet.alive) == (2, [2, 7])
    assert [i for i, record in enumerate(halved) if record.status == "done"] == [2, 7]
    for i in (2, 7):
        assert halved[i].history["train_loss"].steps.tolist() == whole[i].history["train_loss"].steps.tolist()
        for metric in ("train_loss", "validation_loss"):
            one, other = (record[i].history[metric].values[:2] for record in (whole, halved))
            np.testing.assert_allclose(one, other, rtol=0.02)
