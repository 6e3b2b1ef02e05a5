"""Networks that were kept: ordinary modules that compute what was recorded, and records computed again bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import dst_lab
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dst_lab import data
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.task import pixels
from dst_lab.store import Store, StoreError
from dst_lab.train import train
from small import SMALL
from torch import nn

import decoupled_st as dst

CPU = torch.device("cpu")
CHOICES = [
    Choice.make("decoupled", tau_f=0.5, tau_b="2.0:0.25:linear"),
    Choice.make("gumbel_ste", tau=0.6),
    Choice.make("identity_ste"),
    Choice.make("soft", tau=0.8),
]
NOT_OF_THE_NETWORK = {"train_loss", "gradient_norm", "tau_f", "tau_b"}
AGAIN = """
import json, sys, dst_lab
path, *runs = sys.argv[1:]
print(json.dumps({run: {k: v.tolist() for k, v in dst_lab.evaluate(path, run).items()} for run in runs}))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A store of small runs of every task, kept; with two seeds, so that a run is not alone."""
    from dst_lab.tasks import TASKS

    path = tmp_path_factory.mktemp("kept") / "runs.sqlite"
    configs = [
        TASKS[name].config_type(estimator=choice, seed=seed, **fields)
        for name, fields in SMALL.items()
        for choice in CHOICES
        for seed in (0, 1)
    ]
    with Store.open(path, write=True) as store:
        outcome = train(configs, LocalEngine(CPU), store, Job(networks=True))
    assert outcome.trained == len(configs)
    assert outcome.without_network == ()
    return path


def runs_of(path: Path, task: str, **fields):
    with Store.open(path) as store:
        return [(run, store.history(run.id)) for run in store.runs(task=task, **fields)]


def test_a_fresh_process_computes_what_was_recorded_bit_for_bit(trained) -> None:
    """Every metric of the network at the last step, stochastic and argmax, of every task and kind of estimator; at the
    temperatures that a schedule ended with. JSON keeps float32's digits."""
    ids = [run.id for task in SMALL for run, _ in runs_of(trained, task, seed=1)]
    command = [sys.executable, "-c", AGAIN, str(trained), *ids]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    again = json.loads(done.stdout)
    compared = 0
    for task in SMALL:
        for run, history in runs_of(trained, task, seed=1):
            last = {name: series for name, series in history.items() if not name.startswith("initial_")}
            assert again[run.id].keys() == last.keys() - NOT_OF_THE_NETWORK
            for name, value in again[run.id].items():
                assert np.array_equal(np.float32(value), last[name].values[-1], equal_nan=True), (task, name)
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("run", range(4), ids=[choice.name for choice in CHOICES])
@pytest.mark.parametrize("task", ["stochastic-binary", "logic-gates", "logic-conv", "categorical-autoencoder"])
def test_a_loaded_network_has_the_recorded_loss_and_accuracy(trained, task, run) -> None:
    """By the argmax: accuracy exactly, the loss to float32's rounding of a sum."""
    found, history = runs_of(trained, task, seed=1)[run]
    digits = data.load("digits").test
    x = pixels(digits, CPU)
    if task == "logic-conv":
        x = torch.from_numpy(digits.images) / 255
    elif task == "logic-gates":
        x = torch.from_numpy(data.bits(data.load_levels("digits", 3).test.images, 3)).float()
    output, labels = dst_lab.load(trained, found.id)(x), torch.from_numpy(digits.labels)
    if task == "categorical-autoencoder":
        loss = F.binary_cross_entropy_with_logits(output, x, reduction="none").sum(-1).mean()
    else:
        loss, accuracy = F.cross_entropy(output, labels), (output.argmax(-1) == labels).float().mean()
        assert accuracy.item() == pytest.approx(history["test_accuracy_argmax"].values[-1], abs=1e-6)
    assert loss.item() == pytest.approx(history["test_loss_argmax"].values[-1], rel=1e-5)


def test_what_it_is_made_of(trained) -> None:
    """Parts of torch and of the library; constant temperatures as they were given, moved ones as they ended: at the
    last of 40 steps the linear schedule from 2 to 0.25 stands at 39/40 of its way."""
    found, _ = runs_of(trained, "stochastic-binary", estimator="decoupled", seed=0)[0]
    network = dst_lab.load(trained, found.id)
    assert [type(part) for part in network] == [nn.Linear, dst.nn.Binary, nn.Linear, dst.nn.Binary, nn.Linear]
    estimator = network[1].estimator
    assert estimator.tau_f == 0.5
    assert estimator.tau_b == pytest.approx(2.0 - 1.75 * 39 / 40)
    assert not network.training
    found, _ = runs_of(trained, "logic-gates", estimator="gumbel_ste", seed=0)[0]
    logic = dst_lab.load(trained, found.id)
    assert [type(part) for part in logic] == [dst.nn.LogicLayer, dst.nn.LogicLayer, dst.nn.GroupSum]
    assert logic[0].estimator == dst.GumbelSTE(tau=0.6)


@pytest.mark.parametrize("task", ["stochastic-binary", "logic-gates", "logic-conv", "categorical-vae"])
def test_what_a_rule_ended_with_is_kept(tmp_path, task, small) -> None:
    """Its state, so that the record is computed again bit for bit, and the temperatures it last set at each place."""
    config = small(task, estimator=Choice.make("decoupled", tau_f="self", tau_b="self"))
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        train([config], LocalEngine(CPU), store, Job(networks=True))
        run = config.run_id
        history, again = store.history(run), dst_lab.evaluate(store, run)
        for name, value in again.items():
            assert np.array_equal(value, history[name].values[-1], equal_nan=True), name
        modules = [part for part in dst_lab.load(store, run).modules() if hasattr(part, "deterministic")]
    found = np.array([module.estimator.tau_b for module in modules])
    np.testing.assert_allclose(found, np.atleast_1d(history["tau_b"].values[-1]), rtol=1e-6)
    assert (found != 1).all()


def test_it_draws_where_it_is_asked_to_and_can_be_trained_on(trained) -> None:
    found, _ = runs_of(trained, "stochastic-binary", estimator="decoupled", seed=0)[0]
    x = pixels(data.load("digits").test, CPU)
    fixed, drawing = dst_lab.load(trained, found.id), dst_lab.load(trained, found.id, deterministic=False)
    assert torch.equal(fixed(x), fixed(x))
    assert not torch.equal(drawing(x), drawing(x))
    assert not torch.equal(fixed.train()(x), fixed(x))
    F.cross_entropy(fixed(x), torch.zeros(len(x), dtype=torch.int64)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in fixed.parameters())


def test_keep_says_which_runs_were_recorded_without(cli) -> None:
    words = ("run", "bias-variance", "--steps", "4", "--evaluate-every", "2", "--threads", "1", "--store")
    assert cli(*words, "a.sqlite", "--seeds", "1").code == 0
    assert not Path("a.sqlite.networks").exists()
    ended = cli(*words, "a.sqlite", "--seeds", "2", "--keep")
    assert ended.code == 0
    assert "dst: of 1 recorded runs no network is next to the store" in ended.err
    with Store.open("a.sqlite") as store:
        (first,), (second,) = ([run.id for run in store.runs(seed=seed)] for seed in (0, 1))
    assert first in ended.err
    with pytest.raises(StoreError, match=f"the network of run {first} is missing: there is no .*--keep"):
        dst_lab.load("a.sqlite", first)
    assert isinstance(dst_lab.load("a.sqlite", second), nn.Module)
    # What the sentence says to do.
    assert cli(*words, "b.sqlite", "--seeds", "1", "--keep").code == 0
    assert cli("merge", "b.sqlite", "--store", "a.sqlite").code == 0
    assert isinstance(dst_lab.load("a.sqlite", first), nn.Module)
    assert "next to the store" not in cli(*words, "a.sqlite", "--seeds", "2", "--keep").err


def test_a_run_that_diverged_leaves_no_network_and_says_so(cli) -> None:
    words = ("run", "polynomial", "--lr", "1e38", "--steps", "20", "--evaluate-every", "5", "--threads", "1")
    assert cli(*words, "--seeds", "1", "--keep", "--store", "a.sqlite").code == 0
    with Store.open("a.sqlite") as store:
        (run,) = store.runs()
    assert run.status == "diverged"
    for ask in (dst_lab.load, dst_lab.evaluate):
        with pytest.raises(StoreError, match=f"run {run.id} diverged, and such a run leaves no network"):
            ask("a.sqlite", run.id)
    with pytest.raises(StoreError, match=r"holds no run 'none'. `dst show --group id` lists those there are"):
        dst_lab.load("a.sqlite", "none")
