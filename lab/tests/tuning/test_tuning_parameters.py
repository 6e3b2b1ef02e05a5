"""What an objective of one's own is given and returns, and what of it is recorded."""

import math
from pathlib import Path
from typing import Any

import dst_lab
import numpy as np
import pytest
import torch
from dst_lab.store import Store


@pytest.mark.parametrize("plan", ["grid", "sequential"])
def test_true_is_not_one(plan: str, tmp_path: Path) -> None:
    calls = []

    def objective(x: Any, seed: int) -> float:
        calls.append((type(x[0] if isinstance(x, tuple | list) else x), seed))
        return 0.0

    dst_lab.tune(objective, plan=plan, seeds=1, x=[1, True, 1, (1,), (True,)], store=tmp_path / "t.sqlite")
    assert sorted(calls, key=str) == [(bool, 0), (bool, 0), (int, 0), (int, 0)]


def test_what_an_objective_may_return(tmp_path: Path) -> None:
    options = {"tau_f": [0.5], "tau_b": [1.0], "seeds": 1, "store": tmp_path / "t.sqlite"}
    loss = torch.tensor(0.25, requires_grad=True)
    assert dst_lab.tune(lambda tau_f, tau_b, seed: loss, **options, name="tensor").loss == 0.25
    assert dst_lab.tune(lambda tau_f, tau_b, seed: loss.bfloat16(), **options, name="half").loss == 0.25
    assert dst_lab.tune(lambda tau_f, tau_b, seed: [1, loss, loss + 1], **options, name="epochs").loss == 0.25
    with pytest.raises(ValueError, match="every setting of 'bad' has a run whose loss is not finite"):
        dst_lab.tune(lambda tau_f, tau_b, seed: math.inf, **options, name="bad")
    with Store.open(tmp_path / "t.sqlite") as store:
        assert [run.config["objective"] for run in store.runs(status="diverged")] == ["bad"]


def test_more_parameters_than_temperatures(tmp_path: Path) -> None:
    """One after the other, each at its best from then on; words, whole numbers and NumPy's are parameters too."""
    calls: list[dict[str, Any]] = []

    def objective(**given: Any) -> float:
        calls.append(given)
        depth, kind = given["depth"], given["kind"]
        assert isinstance(depth, int)
        return (given["tau_f"] - 0.5) ** 2 + abs(math.log(given["lr"] / 0.01)) + abs(depth - 3) + (kind != "b")

    axes = {"tau_f": np.linspace(0, 1, 3), "lr": [0.001, 0.01, 0.1], "depth": [1, 3, 5], "kind": ["a", "b"]}
    options = {**axes, "seeds": 2, "start": {"lr": 0.1, "scale": 7}, "store": tmp_path / "t.sqlite", "name": "many"}
    result = dst_lab.tune(objective, **options)
    assert (result.tau_f, result.lr, result.depth, result.kind) == (0.5, 0.01, 3, "b")
    assert dict(result.values) == {"tau_f": 0.5, "lr": 0.01, "depth": 3, "kind": "b"}
    assert result.loss == 0
    assert len(calls) == 2 * (3 + 2 + 2 + 1), "what a sweep has in common with the one before it is trained once"
    assert calls[0] == {"tau_f": 0.0, "lr": 0.1, "depth": 1, "kind": "a", "scale": 7, "seed": 0}
    assert result.table[0] == (0.5, 0.01, 3, "b", 0.0)
    with pytest.raises(AttributeError, match="no parameter 'tau_b' was tuned"):
        _ = result.tau_b
    assert dst_lab.tune(objective, **options) == result
    assert len(calls) == 16
    with Store.open(tmp_path / "t.sqlite") as store:
        config = store.runs()[0].config
    assert config["lr"] == 0.1
    assert config["parameters"] == {"depth": 1, "kind": "a", "scale": 7}


def test_runs_are_known_as_before(tmp_path: Path) -> None:
    temperatures = {"tau_f": [0.5], "tau_b": [2], "plan": "sequential"}
    others = {"lr": [0.1], "batch": [64], "dataset": ["digits"], "depth": [3], "tau_f": [0.5], "tau_b": [1.0]}
    for given, ids in (
        (temperatures, ["0fbb73f77ce911fe", "f2772a772d8a870b"]),
        ({**others, "plan": "grid"}, ["071a176695fd5453"]),
    ):
        store = tmp_path / f"{given['plan']}.sqlite"
        dst_lab.tune(lambda **given: given["tau_b"], **given, seeds=1, store=store, name="bowl")
        with Store.open(store) as opened:
            assert [run.id for run in opened.runs()] == ids


def test_a_value_that_is_given_is_not_one_that_is_not(tmp_path: Path) -> None:
    """A record writes no learning rate as 1.0, no batch as 1 and no data set as "", all of which may be given too."""
    seen: list[dict[str, Any]] = []

    def objective(**given: Any) -> float:
        seen.append({name: value for name, value in given.items() if name not in ("tau_f", "seed")})
        return abs(given.get("lr", 0.5) - 1) + given.get("batch", 0) + len(given.get("dataset", "none"))

    options = {"tau_f": [0.5], "seeds": 1, "plan": "grid", "store": tmp_path / "t.sqlite", "name": "given"}
    dst_lab.tune(objective, **options)
    axes: dict[str, list[Any]] = {"lr": [0.001, 1], "batch": [2, 1], "dataset": ["", "digits"]}
    for name, values in axes.items():
        dst_lab.tune(objective, **options, **{name: values})
    assert seen == [{}, *({name: value} for name, values in axes.items() for value in values)]
    found = dst_lab.tune(objective, **{**options, "plan": "sequential"}, lr=[1.0, 0.001], batch=[1, 2], start={"x": 3})
    assert (found.lr, found.batch) == (1.0, 1)
    assert seen[7:] == [
        {"lr": 1.0, "batch": 1, "x": 3},
        {"lr": 0.001, "batch": 1, "x": 3},
        {"lr": 1, "batch": 2, "x": 3},
    ]
    with Store.open(tmp_path / "t.sqlite") as store:
        configs = [run.config for run in store.runs()]
    assert [config.get("parameters") for config in configs[:3]] == [None, None, {"lr": 1.0}]


def test_a_temperature_that_is_not_given_is_neither_passed_nor_recorded(tmp_path: Path) -> None:
    """Its default in the objective is nobody's business: such runs are not those of the card's default."""
    calls: list[tuple[float, float]] = []

    def train(tau_f: float, tau_b: float = 0.5, seed: int = 0) -> float:
        calls.append((tau_f, tau_b))
        return (tau_f - 0.5) ** 2 + (tau_b - 0.5) ** 2

    options: dict[str, Any] = {"tau_f": [0.25, 0.5, 1.0], "seeds": 1, "store": tmp_path / "t.sqlite"}
    dst_lab.tune(train, **options)
    assert calls == [(0.25, 0.5), (0.5, 0.5), (1.0, 0.5)]
    with Store.open(tmp_path / "t.sqlite") as store:
        assert [run.config["estimator"] for run in store.runs()] == [
            {"name": "decoupled", "tau_f": tau_f} for tau_f in options["tau_f"]
        ]
    found = dst_lab.tune(train, **options, tau_b=[0.5, 1.0, 2.0], plan="grid")
    assert len(calls) == 3 + 9, "all of the grid is trained"
    assert (found.tau_f, found.tau_b) == (0.5, 0.5)
    assert {row[:2]: row[2] for row in found.table}[0.5, 1.0] == 0.25
    dst_lab.tune(train, **options, start={"tau_b": 1.0})
    dst_lab.tune(train, **options)
    assert len(calls) == 12, "what is known is not trained again"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "what is to be tuned"),
        ({"tau": [1.0]}, "got tau: name an estimator that takes it, such as estimator=.softmax_ste"),
        ({"task": [1]}, "a parameter cannot be called task"),
        ({"tau_f": [1.0], "plan": "random"}, "plan must be"),
        ({"tau_f": [1.0], "tau_b": [0.0, 1.0]}, "tau_b must stay above 0"),
        ({"tau_f": [0.5, 1.0], "seeds": 0}, "seeds is how many runs each setting has, at least 1, got 0"),
        ({"tau_f": 0.5}, "tau_f takes a list of values to try, got 0.5"),
        ({"activation": [math.tanh]}, "activation takes numbers, texts, booleans, None and lists of them, got <built"),
        ({"lr": [0.1, "a"]}, "lr takes a number, got 'a'"),
        ({"batch": ["many"]}, "batch takes whole numbers, got 'many'"),
        ({"kind": ("a", "b"), "plan": "adaptive"}, "values to choose among are a list; got kind"),
        ({"tau_f": [0.5], "name": ["a", "b"]}, "name is what the objective is called in the store"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_there_is_a_store(given, message, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        dst_lab.tune(lambda **_: 1.0, **{"plan": "grid", **given}, store=tmp_path / "t.sqlite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("returned", [None, "abc", {"loss": 1.0}, 1j, 10**400])
def test_what_is_no_loss_is_told(returned, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the objective must return a validation loss, or one per epoch, got "):
        dst_lab.tune(lambda **_: returned, tau_f=[1.0, 2.0], store=tmp_path / "t.sqlite")
