"""A task of one's own that breaks its promise: a sentence that names it, when it is given, built, stepped, measured."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.contract import ContractError
from dst_lab.fleet.recording import worse_than_untrained
from dst_lab.fleet.task import Task
from dst_lab.runs import CONFIGS, Config
from dst_lab.store import Series, Store
from dst_lab.tasks import TASKS, register
from dst_lab.train import train as train_runs
from toys import Toy, ToyConfig

CPU = torch.device("cpu")


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train four runs of a toy with these methods, into a store that is given back."""

    def go(lr: float = 0.01, **methods: Any) -> Store:
        task = type("Toy", (Toy,), {"__module__": __name__, "__qualname__": "Toy", **methods})
        register(task)
        configs = [ToyConfig(estimator=Choice.make("identity_ste"), seed=seed, lr=lr) for seed in range(4)]
        store = Store.open(tmp_path / "toy.sqlite", write=True)
        stores.append(store)
        go.outcome = train_runs(configs, LocalEngine(CPU), store, Job(checkpoint_seconds=0.0))
        return store

    stores: list[Store] = []

    def close() -> None:
        while stores:
            stores.pop().close()

    go.close = close
    yield go
    close()
    TASKS.pop("toy", None)
    CONFIGS.pop("toy", None)


BREACHES = {
    "a metric of the loop": (
        {"evaluate": lambda self, p, c: {**Toy.evaluate(self, p, c), "tau_b": p["w"][:, 0]}},
        "the task toy: evaluate gives a metric 'tau_b', which the training loop measures itself: give it another name",
    ),
    "no validation_loss": (
        {"evaluate": lambda self, p, c: {"loss": p["w"][:, 0]}},
        "the task toy: evaluate must give validation_loss, which searches choose by: loss",
    ),
    "a scalar loss": (
        {"loss": lambda self, p, i, c: Toy.loss(self, p, i, c).mean()},
        r"the task toy: loss must give one number per run and example, \[runs, batch\] = \[4, 8\], got a scalar of "
        "float32; do not sum or average it",
    ),
    "a loss without a gradient": (
        {"loss": lambda self, p, i, c: Toy.loss(self, p, i, c).detach()},
        r"with a gradient to the parameters, got \[4, 8\] of float32 without one \(is something detached\?\)",
    ),
    "a parameter that nothing uses": (
        {"initial": lambda self, seed: {**Toy.initial(self, seed), "spare": torch.zeros(2)}},
        "the loss does not depend on the parameter spare: use them or leave them out",
    ),
    "a metric of the wrong shape": (
        {"evaluate": lambda self, p, c: {**Toy.evaluate(self, p, c), "mean": p["w"].mean()}},
        r"evaluate gives the metric 'mean' as \[runs, ...\] = \[4, ...\], got a scalar of float32",
    ),
    "a diagnosis of the wrong shape": (
        {"diagnose": lambda self, p, c, step: {"d": torch.zeros(3)}},
        r"diagnose gives the metric 'd' as \[runs, ...\] = \[4, ...\], got \[3\]",
    ),
    "a metric of two shapes": (
        {"diagnose": lambda self, p, c, step: {"d": torch.zeros(4, step)}},
        r"the metric 'd' of a run must have one shape at every evaluation, got \[4\] after \[2\] at step 2",
    ),
    "an artefact of the wrong shape": (
        {"artefacts": lambda self, p, c: {"a": np.zeros(2)}},
        r"artefacts gives 'a' as a NumPy array \[runs, ...\] = \[4, ...\], got an array \[2\]",
    ),
    "no images": ({"__init__": Task.__init__}, "__init__ must set `images`, how many there are to train on: None"),
    "parameters that are whole": (
        {"initial": lambda self, seed: {"w": torch.zeros(1, dtype=torch.int64)}},
        r"initial\(seed\)\['w'\] must be a tensor of floats, got \[1\] of int64",
    ),
    "a buffer that some seeds lack": (
        {"buffers": lambda self, seed: {"b": torch.zeros(2)} if seed else {}},
        r"buffers\(seed\)\['b'\] must have one shape for all seeds, got nothing for seed 0 and \[2\] for seed 1",
    ),
    "a shape for each seed": (
        {"initial": lambda self, seed: {"w": torch.zeros(seed + 1)}},
        r"one shape for all seeds, got \[1\] for seed 0 and \[2\] for seed 1",
    ),
}


@pytest.mark.parametrize("breach", list(BREACHES))
def test_a_breach_is_a_sentence_and_no_run_fails_for_it(train, breach) -> None:
    methods, message = BREACHES[breach]
    with pytest.raises(ContractError, match=message):
        train(**methods)


def failing(part: str, lost: Any, message: str) -> Any:
    """A part of the toy that fails for some seeds."""

    def of_some(self: Toy, seed: int) -> dict[str, torch.Tensor]:
        if seed in lost:
            raise FileNotFoundError(2, message, f"warm_{seed}.pt")
        return Toy.initial(self, seed) if part == "initial" else {"c": torch.ones(1)}

    return of_some


@pytest.mark.parametrize("part", ["initial", "fixed", "buffers"])
def test_a_part_that_fails_for_some_seeds_costs_those_runs_alone(train, part) -> None:
    """Such as a warm start that has files for some."""
    runs = {run.seed: run for run in train(**{part: failing(part, {0, 3}, "no such file")}).runs()}
    assert {seed: run.status for seed, run in runs.items()} == {0: "failed", 1: "done", 2: "done", 3: "failed"}
    assert all(f"warm_{seed}.pt" in runs[seed].detail["reason"] for seed in (0, 3))


def test_a_breach_leaves_nothing_behind(train, tmp_path) -> None:
    with pytest.raises(ContractError):
        train(**BREACHES["no validation_loss"][0])
    with Store.open(tmp_path / "toy.sqlite") as store:
        assert store.runs() == []


def test_no_checkpoint_keeps_a_shape_that_was_mended(train, tmp_path) -> None:
    """Its history has the shape from before: gone on from, every command would end with the same breach."""
    with pytest.raises(ContractError):
        train(**BREACHES["a metric of two shapes"][0])
    assert not list(tmp_path.glob("saved/*.npz"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: 3, "a task is a class derived from dst_lab.fleet.task.Task, got 3"),
        (lambda: type("T", (Task,), {}), "T.config_type must be a dataclass derived from dst_lab.runs.Config, got"),
        (
            lambda: type("T", (Task,), {"config_type": ToyConfig, "initial": Toy.initial}),
            "the task toy lacks bytes_per_run, evaluate, loss: see docs/own.md",
        ),
        (
            lambda: type("T", (Toy,), {"config_type": dataclass(frozen=True, kw_only=True)(type("C", (Config,), {}))}),
            "C.task must be a name without spaces, such as 'routing', got None",
        ),
        (
            lambda: type("T", (Toy,), {"config_type": dataclass(type("C", (Config,), {"task": "c"}), frozen=True)}),
            r"the task c: C.steps_of\(images\) is missing",
        ),
    ],
)
def test_what_is_no_task_is_not_registered(given, message) -> None:
    before = dict(TASKS)
    with pytest.raises(ContractError, match=message):
        register(given())
    assert before == TASKS


def test_a_task_that_keeps_its_promise_is_trained(train) -> None:
    store = train()
    assert [run.status for run in store.runs()] == ["done"] * 4
    assert [dict(run.detail) for run in store.runs()] == [{}] * 4
    assert train.outcome.worse == []


def test_a_run_far_above_chance_is_done_and_told(train) -> None:
    """A rate of 1e6: finite, and a million times the loss before any update."""
    store = train(lr=1e6)
    for run in store.runs():
        assert run.status == "done"
        told = run.detail["worse_than_untrained"]
        assert told["last"] == store.history(run.id)["train_loss"].values[-1] > 1e6
        assert 0 < told["untrained"] < 30
    assert len(train.outcome.worse) == 4


def test_a_loss_that_the_first_update_broke_is_not_the_tasks(train, monkeypatch) -> None:
    """A first evaluation that follows the first step: what is not finite there was trained."""
    monkeypatch.setattr(ToyConfig, "steps_of", lambda self, images: (4, 1))
    store = train(lr=3e38)
    assert {(run.status, run.detail["step"], run.detail["reason"]) for run in store.runs()} == {
        ("diverged", 1, "the loss is not finite")
    }


def test_a_loss_that_was_never_a_number_is_told_from_one_that_became_none(train) -> None:
    """The first is the task's, not the training's."""
    store = train(loss=lambda self, p, i, c: Toy.loss(self, p, i, c) * torch.nan)
    assert {run.status for run in store.runs()} == {"diverged"}
    assert {run.detail["reason"] for run in store.runs()} == {"the loss is not finite, before any update"}


@pytest.mark.parametrize(
    ("untrained", "last", "worse"),
    [(2.3, 4.5, False), (2.3, 4.7, True), (0.0, 1e-3, True), (-5.0, -1.0, False), (-5.0, 0.5, True), (2.3, 0.1, False)],
)
def test_how_much_is_far(untrained, last, worse) -> None:
    history = {"train_loss": Series(np.array([1, 2]), np.array([9.9, last]))}
    assert bool(worse_than_untrained(untrained, history)) is worse


def test_the_command_says_so(cli) -> None:
    """In `dst run`, and as a column of `dst show`, whose means leave nothing out."""
    words = ("run", "stochastic-binary", "--epochs", "1", "--seeds", "2", "--lr", "1e6", "--store", "a.sqlite")
    ended = cli(*words)
    assert ended.code == 0
    assert "dst: 2 runs ended worse than untrained (" in ended.err
    assert "They count as done." in ended.err
    shown = cli("show", "--store", "a.sqlite").out
    assert "worse" in shown
    assert "worse than untrained" not in cli(*words).err
