"""A fleet that was stopped and goes on ends as if it had never stopped, bit for bit on a CPU."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet import checkpoint as module
from dst_lab.fleet.checkpoint import Checkpoint, runs_of
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.store import Record
from dst_lab.tasks import TASKS


def fleet(configs: list[Any], path: Path | None = None, **options: Any) -> Fleet:
    task = TASKS[configs[0].task](configs[0], None, torch.device("cpu"))
    return Fleet(task, configs, Checkpoint(path, **options) if path else None)


def stop_at(step: int, configs: list[Any], path: Path) -> None:
    """Train until `step` and save there; the fleet, and all it held, is gone afterwards."""
    begun = fleet(configs, path)
    with pytest.raises(TrainingStoppedError):
        begun.train(stop=lambda: begun.step == step)
    assert path.exists()


@pytest.fixture
def configs(small: Callable[..., Any], name: str) -> list[Any]:
    """Three runs that differ in seed, rate and temperatures, with schedules."""
    choices = [
        Choice.make("decoupled", tau_f="1.0:0.25:cosine", tau_b=0.7),
        Choice.make("decoupled", tau_f="0.1:2.0:linear:0.5", tau_b="0.5:1.5:exponential"),
        Choice.make("decoupled", tau_f=0.0, tau_b=0.5),
    ]
    return [small(name, seed=4 + i % 2, lr=(1 + i) * 1e-3, estimator=choice) for i, choice in enumerate(choices)]


def moments(configs: list[Any]) -> list[int]:
    """After the first step, before, at and after an evaluation, between two, and when all steps are done."""
    steps, every = fleet(configs).steps, fleet(configs).every
    return [1, every - 1, every, every + 1, every + every // 2, steps]


def test_stopped_anywhere_it_ends_the_same(configs, tmp_path, content) -> None:
    whole = [content(record) for record in fleet(configs).train()]
    assert all(record["status"] == "done" for record in whole)
    for step in moments(configs):
        path = tmp_path / f"{step}.npz"
        stop_at(step, configs, path)
        resumed = fleet(configs, path)
        assert resumed.step == step
        assert [content(record) for record in resumed.train()] == whole, f"stopped at step {step}"


@pytest.mark.parametrize("course", ["2.0:0.25:linear", "self"])
def test_stopped_at_its_last_step_it_keeps_the_same_network(small, name, course, tmp_path, content) -> None:
    """Its temperatures are those of the step that was done before the stop."""
    course = "1.0:0.5:cosine" if name == "bias-variance" else course  # where a rule has nothing to observe
    choice = Choice.make("decoupled", tau_f=course, tau_b=course)
    for configs in ([small(name, seed=seed, estimator=choice) for seed in seeds] for seeds in ((3, 4), (3,))):
        whole = fleet(configs).train(networks=True)
        path = tmp_path / f"{len(configs)}.npz"
        stop_at(fleet(configs).steps, configs, path)
        resumed = fleet(configs, path).train(networks=True)
        for one, other in zip(whole, resumed, strict=True):
            assert content(one) == content(other)
            assert one.network.keys() == other.network.keys()
            for key, kept in one.network.items():
                np.testing.assert_array_equal(kept, other.network[key], err_msg=key)
                assert np.isfinite(kept).all()


def test_a_lone_run_and_one_that_diverges_go_on_too(small, name, tmp_path, content) -> None:
    for i, configs in enumerate([[small(name, seed=3)], [small(name, seed=3), small(name, seed=4, lr=1e38)]]):
        whole = [content(record) for record in fleet(configs).train()]
        assert [record["status"] for record in whole] == ["done", "diverged"][: len(configs)]
        stop_at(moments(configs)[2] + 2, configs, tmp_path / f"{i}.npz")
        assert [content(record) for record in fleet(configs, tmp_path / f"{i}.npz").train()] == whole


@pytest.fixture
def begun(small: Callable[..., Any], tmp_path: Path) -> tuple[list[Any], Path]:
    """Two small runs and their checkpoint, half way."""
    configs = [small("stochastic-binary", seed=seed, hidden=(4,), batch=128) for seed in (1, 2)]
    stop_at(12, configs, tmp_path / "begun.npz")
    return configs, tmp_path / "begun.npz"


def state(fleet: Fleet) -> dict[str, Any]:
    tensors = {
        f"{kind} {name}": tensor.tolist()
        for kind, group in {"p": fleet.parameters, "m": fleet.optimiser.mean, "v": fleet.optimiser.square}.items()
        for name, tensor in group.items()
    }
    rows = [(step, {name: values.tolist() for name, values in row.items()}) for step, row in fleet.history]
    return {**tensors, "loss_sum": fleet.loss_sum.tolist(), "step": fleet.step, "history": rows}


def test_a_damaged_file_is_as_good_as_none(begun, content) -> None:
    configs, path = begun
    fresh, saved, whole = state(fleet(configs)), state(fleet(configs, path)), path.read_bytes()
    assert fresh != saved
    expected = [content(record) for record in fleet(configs).train()]
    for damaged in (b"", whole[:1], whole[:100], whole[: len(whole) // 2], whole[:-1], b"\0" * len(whole), b"PK"):
        path.write_bytes(damaged)
        assert state(fleet(configs, path)) == fresh
        assert runs_of(path) is None
    assert [content(record) for record in fleet(configs, path).train()] == expected


def test_a_file_that_is_whole_but_no_checkpoint_of_this_is_not_used(begun, small) -> None:
    configs, path = begun
    fresh = state(fleet(configs))
    with np.load(path) as stored:
        arrays = dict(stored)
    head = json.loads(arrays["head"].tobytes())

    def written(**changes: Any) -> Path:
        np.savez(path, **{**arrays, **changes})
        return path

    def packed(**changes: Any) -> Any:
        return np.frombuffer(json.dumps({**head, **changes}).encode(), np.uint8)

    assert state(fleet(configs, written())) != fresh
    for changes in (
        {"head": packed(format=1)},
        {"head": packed(runs=head["runs"][::-1])},
        {"head": packed(source={"task_source": "of another day"})},
        {"head": np.frombuffer(b"{}", np.uint8)},
        {"head": np.frombuffer(b"[1]", np.uint8)},
        {"head": np.frombuffer(b"no json", np.uint8)},
        {"parameters/0.weight": arrays["parameters/0.weight"][:, :-1]},
        {"mean/0.weight": arrays["mean/0.weight"].astype(np.float64)},
        {"square/0.bias": np.array(["text"])},
    ):
        assert state(fleet(configs, written(**changes))) == fresh, changes
    without = {name: array for name, array in arrays.items() if name != "bad_step"}
    np.savez(path, **without)
    assert state(fleet(configs, path)) == fresh
    others = [small("stochastic-binary", seed=seed, hidden=(4,), batch=128) for seed in (1, 3)]
    assert state(fleet(others, written())) == state(fleet(others))


def test_a_disk_that_takes_none_is_told_and_training_goes_on(small, tmp_path, content) -> None:
    configs = [small("stochastic-binary", seed=seed) for seed in (0, 1)]
    (tmp_path / "file").write_text("in the way")
    told: list[str] = []
    refused = fleet(configs, tmp_path / "file" / "one.npz", seconds=0.0, tell=told.append)
    records = [content(record) for record in refused.train()]
    assert records == [content(record) for record in fleet(configs).train()]
    assert told


def test_due_after_its_seconds_and_never_for_more_than_a_hundredth_of_the_time(begun, monkeypatch) -> None:
    configs, path = begun
    clock = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    checkpoint = Checkpoint(path, seconds=60.0)
    taken = fleet(configs)

    def due_after(seconds: float) -> bool:
        clock[0] += seconds
        return checkpoint.due()

    assert not due_after(59.9)
    assert due_after(0.1)
    honest = np.savez

    def slow(*stream: Any, **packed: Any) -> None:
        honest(*stream, **packed)
        clock[0] += 2.0

    monkeypatch.setattr(module.np, "savez", slow)
    checkpoint.save(taken)
    # It took 2 seconds: the next is due after 200.
    assert not due_after(199.9)
    assert due_after(0.2)


def test_the_time_before_a_stop_counts(small, tmp_path) -> None:
    configs = [small("stochastic-binary", seed=1)]
    stop_at(30, configs, tmp_path / "one.npz")
    with np.load(tmp_path / "one.npz") as stored:
        before = json.loads(stored["head"].tobytes())["seconds"]
    assert before > 0
    resumed = fleet(configs, tmp_path / "one.npz")
    assert resumed.earlier == before
    resumed.earlier = 100.0
    (record,) = resumed.train()
    assert isinstance(record, Record)
    assert 100.0 < record.provenance["seconds"] < 160.0
    assert record.provenance["fleet"] == 1


@pytest.mark.gpu
def test_stopped_on_cuda_it_goes_on_to_rounding(small, name, tmp_path) -> None:
    """A short run: discrete choices flip when rounding moves a score across a threshold, so longer ones part ways."""
    cuda = torch.device("cuda")
    configs = [
        small(name, seed=seed, estimator=Choice.make("decoupled", tau_f="1:0.5:linear", tau_b=1)) for seed in (0, 1)
    ]
    task = TASKS[name](configs[0], None, cuda)
    whole = Fleet(task, configs).train()
    begun = Fleet(task, configs, Checkpoint(tmp_path / "one.npz"))
    stop = begun.every + 2
    with pytest.raises(TrainingStoppedError):
        begun.train(stop=lambda: begun.step == stop)
    resumed = Fleet(task, configs, Checkpoint(tmp_path / "one.npz"))
    assert resumed.step == stop
    for one, other in zip(whole, resumed.train(), strict=True):
        for metric in ("train_loss", "validation_loss", "gradient_norm"):
            assert one.history[metric].steps.tolist() == other.history[metric].steps.tolist()
            np.testing.assert_allclose(one.history[metric].values, other.history[metric].values, rtol=0.02)
