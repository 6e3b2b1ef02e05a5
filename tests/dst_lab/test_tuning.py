"""Tuning somebody's own objective: resume, divergence, errors."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch

import dst_lab
from dst_lab.store import Store

GRID = {"tau_f": [0.0, 0.5, 1.0, 2.0], "tau_b": [0.25, 0.5, 1.0, 2.0, 4.0]}


class Counted:
    """A synthetic objective with its optimum at (0.5, 2.0); counts its calls, fails after `limit` of them."""

    def __init__(self, limit: float = math.inf) -> None:
        self.calls, self.limit = [], limit

    def __call__(self, tau_f: float, tau_b: float, seed: int) -> list[float]:
        if len(self.calls) >= self.limit:
            raise RuntimeError("the power went")
        self.calls.append((tau_f, tau_b, seed))
        loss = (tau_f - 0.5) ** 2 + math.log(tau_b / 2.0) ** 2 + 0.01 * seed
        return [loss + 1.0, loss, loss + 0.5]


def test_sequential_finds_the_optimum_and_trains_nothing_twice(tmp_path: Path) -> None:
    objective = Counted()
    result = dst_lab.tune(objective, **GRID, store=tmp_path / "t.sqlite", name="bowl")
    assert (result.tau_f, result.tau_b) == (0.5, 2.0)
    assert result.loss == pytest.approx(0.01)  # the mean of 0, 0.01 and 0.02, each the lowest of its epochs
    assert len(objective.calls) == 3 * (4 + 5 - 1)
    assert result.table[0] == (0.5, 2.0, result.loss)
    assert len(result.table) == 4 + 5 - 1
    again = Counted(limit=0)
    assert dst_lab.tune(again, **GRID, store=tmp_path / "t.sqlite", name="bowl") == result
    assert again.calls == []


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "t.sqlite"
    first, second = Counted(limit=7), Counted()
    with pytest.raises(RuntimeError, match="the power went"):
        dst_lab.tune(first, **GRID, store=store, name="bowl")
    result = dst_lab.tune(second, **GRID, store=store, name="bowl")
    assert (result.tau_f, result.tau_b) == (0.5, 2.0)
    assert len(first.calls) + len(second.calls) == 3 * (4 + 5 - 1)
    assert not set(first.calls) & set(second.calls)


def test_a_grid_tries_every_pair(tmp_path: Path) -> None:
    objective = Counted()
    result = dst_lab.tune(objective, **GRID, plan="grid", seeds=1, store=tmp_path / "t.sqlite", name="bowl")
    assert len(set(objective.calls)) == 4 * 5
    assert (result.tau_f, result.tau_b) == (0.5, 2.0)


def test_a_loss_that_is_not_finite_is_diverged_and_not_chosen(tmp_path: Path) -> None:
    def objective(tau_f: float, tau_b: float, seed: int) -> float:
        return math.nan if tau_f == 0.5 else Counted()(tau_f, tau_b, seed)[1]

    result = dst_lab.tune(objective, **GRID, seeds=1, store=tmp_path / "t.sqlite")
    assert result.tau_f != 0.5
    with Store.open(tmp_path / "t.sqlite") as store:
        assert {run.config["estimator"]["tau_f"] for run in store.runs(status="diverged")} == {0.5}


def test_another_name_is_another_objective(tmp_path: Path) -> None:
    dst_lab.tune(Counted(), **GRID, seeds=1, store=tmp_path / "t.sqlite", name="one")
    other = Counted()
    dst_lab.tune(other, **GRID, seeds=1, store=tmp_path / "t.sqlite", name="two")
    assert len(other.calls) == 4 + 5 - 1


def test_an_objective_that_has_changed_is_not_taken_for_the_old_one_in_silence(tmp_path: Path) -> None:
    options = {"tau_f": [0.5, 1.0], "tau_b": [1.0], "seeds": 1, "store": tmp_path / "t.sqlite", "name": "mine"}
    result = dst_lab.tune(lambda tau_f, tau_b, seed: tau_f, **options)
    with pytest.warns(UserWarning, match=r"4 of the 4 runs of 'mine' in .*t.sqlite were trained by another source"):
        assert dst_lab.tune(lambda tau_f, tau_b, seed: -tau_f, **options) == result
    dst_lab.tune(partial(Counted()), **options | {"name": "other"})
    dst_lab.tune(Counted(), **options | {"name": "other"})
    dst_lab.tune(min, **options | {"name": "mine", "tau_f": [0.5]})  # no source: nothing to compare


def test_what_an_objective_may_return(tmp_path: Path) -> None:
    options = {"tau_f": [0.5], "tau_b": [1.0], "seeds": 1, "store": tmp_path / "t.sqlite"}
    loss = torch.tensor(0.25, requires_grad=True)
    assert dst_lab.tune(lambda tau_f, tau_b, seed: loss, **options, name="tensor").loss == 0.25
    assert dst_lab.tune(lambda tau_f, tau_b, seed: loss.bfloat16(), **options, name="half").loss == 0.25
    assert dst_lab.tune(lambda tau_f, tau_b, seed: [1, loss, loss + 1], **options, name="epochs").loss == 0.25
    with pytest.raises(TypeError, match="must return a validation loss, or one per epoch, got None"):
        dst_lab.tune(lambda tau_f, tau_b, seed: None, **options, name="none")
    with pytest.raises(ValueError, match="every setting of 'bad' has a run whose loss is not finite"):
        dst_lab.tune(lambda tau_f, tau_b, seed: math.inf, **options, name="bad")
    with Store.open(tmp_path / "t.sqlite") as store:
        assert [run.config["objective"] for run in store.runs(status="diverged")] == ["bad"]


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plan must be"):
        dst_lab.tune(Counted(), **GRID, plan="random", store=tmp_path / "t.sqlite")
    with pytest.raises(ValueError, match="tau_b must stay above 0"):
        dst_lab.tune(Counted(), tau_f=[1.0], tau_b=[0.0, 1.0], store=tmp_path / "t.sqlite")
