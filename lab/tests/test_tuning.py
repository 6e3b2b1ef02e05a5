"""Tuning somebody's own objective: resume, divergence, errors."""

import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dst_lab
import numpy as np
import pytest
import torch
from dst_lab.estimators import Choice
from dst_lab.records import versions
from dst_lab.store import Store
from dst_lab.store.record import run_id
from dst_lab.tuning.own import OwnConfig
from dst_lab.tuning.workers import Progress
from own_objective import bowl, odd

GRID = {"tau_f": [0.0, 0.5, 1.0, 2.0], "tau_b": [0.25, 0.5, 1.0, 2.0, 4.0]}


class Counted:
    """A synthetic objective with its optimum at (0.5, 2.0); counts its calls, fails after `limit` of them."""

    def __init__(self, limit: float = math.inf) -> None:
        self.calls, self.left = [], limit

    def __call__(self, tau_f: float, tau_b: float, seed: int) -> list[float]:
        if self.left <= 0:
            raise RuntimeError("the power went")
        self.left -= 1
        self.calls.append((tau_f, tau_b, seed))
        loss = (tau_f - 0.5) ** 2 + math.log(tau_b / 2.0) ** 2 + 0.01 * seed
        return [loss + 1.0, loss, loss + 0.5]


def test_a_start_that_is_better_than_what_is_swept_is_what_comes_out(tmp_path: Path) -> None:
    def loss(tau_f: float, tau_b: float, lr: float, seed: int) -> float:
        return (tau_f - 0.5) ** 2 + (tau_b - 1.0) ** 2 + abs(lr - 0.003)

    found = dst_lab.tune(
        loss, tau_f=[0.25, 0.5, 1.0], tau_b=[0.25, 0.5, 2.0], lr=[0.001, 0.01], start={"lr": 0.003}, seeds=1,
        store=tmp_path / "tune.sqlite",
    )  # fmt: skip
    assert found.values == {"tau_f": 0.5, "tau_b": 1.0, "lr": 0.003}
    assert found.table[0] == (0.5, 1.0, 0.003, found.loss)


@pytest.mark.parametrize("start", [1, 1.0])
def test_a_start_may_be_written_otherwise_than_it_is_swept(tmp_path: Path, start: float) -> None:
    calls = []

    def loss(tau_f: float, scale: float, depth: int, seed: int) -> float:
        calls.append((tau_f, scale, depth))
        return (tau_f - 0.5) ** 2 + (scale - 1) ** 2 + abs(depth - 3)

    axes = {"tau_f": [0.25, 0.5, 1], "scale": [0.5, 1.0, 2.0], "depth": [1, 2, 3]}
    found = dst_lab.tune(loss, **axes, start={"scale": start}, seeds=1, store=tmp_path / "t.sqlite")
    assert found.values == {"tau_f": 0.5, "scale": 1.0, "depth": 3}
    assert len(calls) == len(set(calls)) == 3 + 2 + 2


def test_whole_numbers_and_others_are_shown_as_the_two_runs_that_they_are(tmp_path: Path, cli: Any) -> None:
    """3 and 3.0 stood in one row, as two seeds."""
    file = tmp_path / "t.sqlite"
    for layers in ([1, 3], [1.0, 3.0]):
        dst_lab.tune(lambda layers, seed: float(layers), layers=layers, seeds=1, store=file, name="f")
    cells = [
        line.split("│")[1:3] for line in cli("show", "--store", file, "--group", "parameters.layers").out.splitlines()
    ]
    shown = [
        (layers.strip(), int(n))
        for layers, n in (pair for pair in cells if len(pair) == 2 and pair[1].strip().isdigit())
    ]
    assert sorted(shown) == [("1", 1), ("1.0", 1), ("3", 1), ("3.0", 1)]


def test_configs_are_equal_where_their_runs_are_one() -> None:
    """1, 1.0 and True are three texts in a record, and so three runs."""
    base = OwnConfig(estimator=Choice.make("softmax_ste", tau=1.0), objective="f")
    configs = [base.with_value("scale", value) for value in (1, 1.0, True, (1,), (1.0,))]
    assert len({run_id(config.to_dict()) for config in configs}) == len(set(configs)) == 5


def test_sequential_finds_the_optimum_and_trains_nothing_twice(tmp_path: Path) -> None:
    objective = Counted()
    result = dst_lab.tune(objective, **GRID, store=tmp_path / "t.sqlite", name="bowl")
    assert (result.tau_f, result.tau_b) == (0.5, 2.0)
    assert result.loss == pytest.approx(0.01)  # the mean of 0, 0.01 and 0.02, each the lowest of its epochs
    assert len(objective.calls) == 3 * (4 + 5 - 1)
    assert result.table[0] == (0.5, 2.0, result.loss)
    assert len(result.table) == 4 + 5 - 1
    again = Counted()
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


def test_the_live_line_knows_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    monkeypatch.setattr(Progress, "note_loss", lambda _, loss, values: told.append(loss))
    with pytest.raises(RuntimeError, match="the power went"):
        dst_lab.tune(Counted(limit=7), **GRID, store=tmp_path / "t.sqlite", name="bowl")
    before = told.copy()
    told.clear()
    with pytest.raises(RuntimeError, match="the power went"):
        dst_lab.tune(Counted(limit=0), **GRID, store=tmp_path / "t.sqlite", name="bowl")
    assert sorted(told) == sorted(before)


@pytest.mark.parametrize("plan", ["grid", "sequential"])
def test_true_is_not_one(plan: str, tmp_path: Path) -> None:
    calls = []

    def objective(x: Any, seed: int) -> float:
        calls.append((type(x[0] if isinstance(x, tuple | list) else x), seed))
        return 0.0

    dst_lab.tune(objective, plan=plan, seeds=1, x=[1, True, 1, (1,), (True,)], store=tmp_path / "t.sqlite")
    assert sorted(calls, key=str) == [(bool, 0), (bool, 0), (int, 0), (int, 0)]


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


EDITED = """
def loss(tau_f, seed):
    return {factor} * (tau_f - 0.5) ** 2
"""


def test_an_edited_file_is_warned_of_and_a_version_trains_again(tmp_path: Path) -> None:
    file, store = tmp_path / "mine.py", tmp_path / "t.sqlite"

    def tuned(factor: int, seeds: int = 1, **given: Any) -> Any:
        file.write_text(EDITED.format(factor=factor))
        spec = importlib.util.spec_from_file_location("mine", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return dst_lab.tune(module.loss, tau_f=[0.0, 0.5, 2.0], seeds=seeds, store=store, **given)

    first = tuned(1)
    assert tuned(1) == first, "nothing has changed, and nothing is said"
    with pytest.warns(UserWarning, match=r"3 of the 3 runs of 'loss' .* another state of its file.* give version="):
        assert tuned(2) == first, "they count as they are"
    again = tuned(2, version="2")
    assert again.table[-1] == (2.0, 4.5)
    assert first.table[-1] == (2.0, 2.25)
    assert tuned(3, version="2") == again, "what is stated is believed"
    with Store.open(store) as records:
        assert sorted(run.config.get("version", "") for run in records.runs()) == [""] * 3 + ["2"] * 3
        assert versions(records, records.runs()) == [], "a stated version is none of the file"
    with pytest.warns(UserWarning, match="another state"):
        tuned(4, seeds=2)
    with Store.open(store) as records:
        assert versions(records, records.runs()) == [
            "6 runs of the objective loss were trained by 2 versions of its code (3, 3), which count as one"
        ]


KILLED = """
import sys
sys.path[:0] = {path!r}
if __name__ == "__main__":
    import dst_lab
    from own_objective import bowl
    dst_lab.tune(bowl, tau_f=[0.1 * k for k in range(40)], tau_b=[1.0], start={{"folder": {folder!r}}}, seeds=9,
                 workers=2, store={store!r})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_a_search_that_is_killed(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    script = tmp_path / "search.py"
    path = [os.path.abspath(part) for part in sys.path if part]
    script.write_text(KILLED.format(path=path, folder=str(seen), store=str(tmp_path / "t.sqlite")))
    search = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 60
    while len(workers := [int(file.name) for file in seen.iterdir()]) < 2:
        assert search.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    search.kill()
    search.wait()
    while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


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


def test_more_parameters_than_temperatures(tmp_path: Path) -> None:
    """One after the other, each at its best from then on; words, whole numbers and NumPy's are parameters too."""
    calls: list[dict[str, Any]] = []

    def objective(**given: Any) -> float:
        calls.append(given)
        depth, kind = given["depth"], given["kind"]
        assert isinstance(depth, int)
        return (given["tau_f"] - 0.5) ** 2 + abs(math.log(given["lr"] / 0.01)) + abs(depth - 3) + (kind != "b")

    options = {
        "tau_f": np.linspace(0, 1, 3), "lr": [0.001, 0.01, 0.1], "depth": [1, 3, 5], "kind": ["a", "b"], "seeds": 2,
        "start": {"lr": 0.1, "scale": 7}, "store": tmp_path / "t.sqlite", "name": "many",
    }  # fmt: skip
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


def test_runs_of_the_two_temperatures_are_known_as_before(tmp_path: Path) -> None:
    dst_lab.tune(Counted(), tau_f=[0.5], tau_b=[2], seeds=1, store=tmp_path / "t.sqlite", name="bowl")
    with Store.open(tmp_path / "t.sqlite") as store:
        assert [run.id for run in store.runs()] == ["0fbb73f77ce911fe", "f2772a772d8a870b"]


def test_runs_of_other_parameters_are_known_as_before(tmp_path: Path) -> None:
    store, given = tmp_path / "t.sqlite", {"lr": [0.1], "batch": [64], "dataset": ["digits"], "depth": [3]}
    given |= {"tau_f": [0.5], "tau_b": [1.0]}
    dst_lab.tune(lambda **_: 1.0, **given, plan="grid", seeds=1, store=store, name="bowl")
    with Store.open(store) as opened:
        assert [run.id for run in opened.runs()] == ["071a176695fd5453"]


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


def test_an_option_that_is_not_given_is_told_from_one_that_is(tmp_path: Path, cli) -> None:
    def train(tau: float, seed: int, samples: int = 2) -> float:
        return samples

    given: dict[str, Any] = {"tau": [0.5], "estimator": "gumbel_rao", "seeds": 1, "store": tmp_path / "t.sqlite"}
    dst_lab.tune(train, **given)
    dst_lab.tune(train, **given, start={"samples": 10})
    rows = json.loads(cli("show", "--json", "--store", tmp_path / "t.sqlite").out)
    assert [(row["samples"], row["mean"], row["n"]) for row in rows] == [(None, 2, 1), (10, 10, 1)]


def test_an_adaptive_search_takes_ranges_and_values(tmp_path: Path) -> None:
    pytest.importorskip("optuna")

    def objective(tau_f: float, tau_b: float, kind: str, seed: int) -> float:
        return math.log(tau_f / 0.4) ** 2 + math.log(tau_b / 3.0) ** 2 + (kind != "b")

    options = {"seeds": 1, "store": tmp_path / "t.sqlite", "plan": "adaptive", "settings": 24, "kind": ["a", "b"]}
    result = dst_lab.tune(objective, tau_f=(0.05, 3), tau_b=(0.05, 3), **options)
    assert len(result.table) == 24
    assert result.kind == "b"
    assert result.loss < 0.5
    assert result.notes[0].startswith("chosen for own decoupled: tau_f=")
    edge = dst_lab.tune(lambda tau_f, kind, seed: -tau_f, tau_f=(0.5, 0.51), name="edge", **options)
    assert edge.notes[1] == f"  tau_f={edge.tau_f} lies at the end of its range, 0.5 to 0.51"
    listed = dst_lab.tune(lambda tau_f, lr, kind, seed: tau_f, tau_f=(0.5, 5.0), lr=[0.1, 0.2], name="lr", **options)
    assert f"  lr={listed.lr} lies on the edge of its values" in listed.notes
    with pytest.raises(ValueError, match="tau_f needs a lowest value above 0"):
        dst_lab.tune(objective, tau_f=(0, 3), **options)
    with pytest.raises(ValueError, match=r"a range is \(lowest, highest\), and values to choose among are a list"):
        dst_lab.tune(objective, tau_f=(1, 2, 3), **options)


def test_a_range_with_whole_ends_is_one_of_whole_numbers(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    seen: list[dict[str, Any]] = []

    def objective(seed: int, **values: Any) -> float:
        seen.append(values)
        return abs(math.log(values["n"] / 20)) + abs(math.log(values["tau_f"] / 2))

    options: dict[str, Any] = {"seeds": 1, "store": tmp_path / "t.sqlite", "plan": "adaptive", "settings": 24}
    ranges = {"n": (2, 64), "scale": (2.0, 64.0), "tau_f": (1, 4), "lr": (1, 3), "batch": (16.0, 64.0)}
    ranges |= {"warmup": (2, 64), "weight_decay": (2, 64)}  # the laboratory's own tasks have these as numbers
    result = dst_lab.tune(objective, **ranges, **options)
    assert all(isinstance(one["n"], int) and 2 <= one["n"] <= 64 for one in seen)
    assert isinstance(result.n, int)
    assert len({one["n"] for one in seen}) > 5
    for name in ("scale", "tau_f", "lr"):
        assert any(one[name] != int(one[name]) for one in seen), name
    assert {type(one[name]) for one in seen for name in ("batch", "warmup", "weight_decay")} == {int}
    assert dst_lab.tune(objective, **ranges, **options) == result
    assert len(seen) == 24, "called again, it trains nothing"


def test_a_whole_number_that_is_proposed_again_is_trained_once(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    seen: list[int] = []
    options: dict[str, Any] = {"seeds": 1, "store": tmp_path / "t.sqlite", "plan": "adaptive", "settings": 24}
    result = dst_lab.tune(lambda n, seed: seen.append(n) or float(n), n=(1, 3), **options)
    assert sorted(seen) == [1, 2, 3]
    assert result.n == 1


def test_the_best_at_the_end_of_its_own_extension_is_told(tmp_path: Path) -> None:
    options = {"tau_f": [0.5], "seeds": 1, "store": tmp_path / "t.sqlite"}
    result = dst_lab.tune(lambda tau_f, tau_b, seed: -tau_b, tau_b=[1, 2], **options, name="up")
    assert result.tau_b == 4
    assert result.notes[0] == "tau_b of own decoupled: best on the high edge of the sweep, extended by [3.0, 4.0]"
    assert result.notes[1] == "  tau_b=4.0 lies at the end of that extension too: better values may lie beyond"
    result = dst_lab.tune(lambda tau_f, tau_b, seed: abs(tau_b - 3), tau_b=[1, 2], **options, name="inside")
    assert result.tau_b == 3
    assert not any("better values" in note for note in result.notes)
    result = dst_lab.tune(lambda tau_f, depth, seed: -depth, depth=[1, 2], **options, name="whole")
    assert result.depth == 2, "what is no temperature is not extended"
    assert "depth of own decoupled: best on the high edge of the sweep" in result.notes


def test_several_workers_find_the_same(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    alone = dst_lab.tune(bowl, **GRID, seeds=2, store=tmp_path / "alone.sqlite", name="bowl")
    options = {**GRID, "seeds": 2, "name": "bowl", "workers": 2, "start": {"folder": str(tmp_path / "seen")}}
    beside = dst_lab.tune(bowl, **options, store=tmp_path / "beside.sqlite")
    assert (beside.tau_f, beside.tau_b, beside.loss) == (alone.tau_f, alone.tau_b, alone.loss) == (0.5, 2.0, 0.0005)
    calls = [len(file.read_text().splitlines()) for file in (tmp_path / "seen").iterdir()]
    assert len(calls) == 2, "two processes"
    assert sum(calls) == 2 * (4 + 5 - 1)
    with ThreadPoolExecutor(2) as pool:
        own = dst_lab.tune(Counted(), **GRID, seeds=1, store=tmp_path / "own.sqlite", name="bowl", workers=pool)
    assert (own.tau_f, own.tau_b) == (0.5, 2.0)
    with pytest.raises(ValueError, match="which import the objective: write it in a module"):
        dst_lab.tune(lambda tau_f, seed: 0.0, tau_f=[1], workers=2, store=tmp_path / "own.sqlite")


def test_a_worker_that_raises_ends_the_search_and_nothing_is_lost(tmp_path: Path) -> None:
    options = {"tau_f": [0.5, 9, 1.0], "tau_b": [2.0], "seeds": 1, "store": tmp_path / "t.sqlite", "name": "bowl"}
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="the power went"):
        dst_lab.tune(bowl, **options, workers=pool)
    with Store.open(tmp_path / "t.sqlite") as store:
        trained = {run.config["estimator"]["tau_f"] for run in store.runs()}
    assert 0.5 in trained
    assert 9 not in trained


def test_errors(tmp_path: Path) -> None:
    for given, sentence in (
        ({}, "what is to be tuned"),
        (
            {"tau": [1.0]},
            "got tau: name an estimator that takes it, such as estimator=.softmax_ste",
        ),
        ({"task": [1]}, "a parameter cannot be called task"),
        ({"tau_f": [1.0], "start": {"name": "x"}}, "a parameter cannot be called name"),
        ({"tau_f": []}, "tau_f takes a list of values to try"),
    ):
        with pytest.raises(ValueError, match=sentence):
            dst_lab.tune(Counted(), **given, store=tmp_path / "t.sqlite")
    with pytest.raises(ValueError, match="plan must be"):
        dst_lab.tune(Counted(), **GRID, plan="random", store=tmp_path / "t.sqlite")
    with pytest.raises(ValueError, match="tau_b must stay above 0"):
        dst_lab.tune(Counted(), tau_f=[1.0], tau_b=[0.0, 1.0], store=tmp_path / "t.sqlite")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tau_f": [0.5, 1.0], "seeds": 0}, "seeds is how many runs each setting has, at least 1, got 0"),
        ({"tau_f": [0.5, 1.0], "seeds": [0, 1]}, r"at least 1, got \[0, 1\]"),
        ({"tau_f": 0.5}, "tau_f takes a list of values to try, got 0.5"),
        ({"tau_f": {"low": 0.5}}, "tau_f takes a list of values to try"),
        (
            {"activation": [math.tanh]},
            "activation takes numbers, texts, booleans, None and lists of them, got <built-in",
        ),
        ({"tau_f": [0.5], "start": {"more": {"a": 1}}}, "more takes numbers, texts"),
        ({"lr": [None, 0.1]}, "lr takes a number, got None"),
        ({"lr": [0.1, "a"]}, "lr takes a number, got 'a'"),
        ({"lr": [0.1], "start": {"lr": (1, 2)}}, r"lr takes a number, got \(1, 2\)"),
        ({"batch": ["many"]}, "batch takes whole numbers, got 'many'"),
        ({"batch": [8, None]}, "batch takes whole numbers, got None"),
        ({"kind": ("a", "b"), "plan": "adaptive"}, "values to choose among are a list; got kind"),
        ({"tau_f": [0.5], "name": ["a", "b"]}, "name is what the objective is called in the store"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_there_is_a_store(given, message, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        dst_lab.tune(lambda **_: 1.0, **{"plan": "grid", **given}, store=tmp_path / "t.sqlite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [np.array([64]), np.array([64, 32]), torch.tensor([64.0])], ids=["1", "2", "torch"])
def test_an_array_is_refused_since_it_would_arrive_as_something_else(tmp_path: Path, given: Any) -> None:
    for words in ({"hidden": [given]}, {"tau_f": [0.5], "start": {"hidden": given}}):
        with pytest.raises(ValueError, match=r"hidden got an array of shape \(.,\): give a list, which"):
            dst_lab.tune(lambda **_: 1.0, **words, plan="grid", store=tmp_path / "t.sqlite")
    assert not list(tmp_path.iterdir())


def test_values_of_numpy_and_lists_may_be_where_a_search_starts(tmp_path: Path) -> None:
    seen = []

    def objective(tau_f: float, depth: int, widths: tuple[int, ...], seed: int) -> float:
        seen.append((depth, type(depth), widths))
        return abs(tau_f - 0.5)

    start = {"depth": np.int64(3), "widths": [8, np.int64(4)]}
    found = dst_lab.tune(
        objective, tau_f=(v for v in (0.0, 0.5, 1.0)), start=start, seeds=1, store=tmp_path / "t.sqlite"
    )
    assert found.tau_f == 0.5
    assert set(seen) == {(3, int, (8, 4))}


def test_a_value_given_twice_is_no_edge_and_neither_is_yes_or_no(tmp_path: Path) -> None:
    store = tmp_path / "t.sqlite"
    found = dst_lab.tune(lambda tau_f, seed: -tau_f, tau_f=[0.5, 1, 1.0], seeds=1, store=store, name="twice")
    assert found.notes[0].endswith("best on the high edge of the sweep, extended by [1.5, 2.0]")
    found = dst_lab.tune(lambda bias, seed: -bias, bias=[False, True], seeds=1, store=store, name="bias")
    assert found.notes == ("chosen for own decoupled: bias=True, -1",)
    found = dst_lab.tune(lambda shift, seed: shift, shift=[-2, -1, 0], seeds=1, store=store, name="shift")
    assert found.notes[0] == "shift of own decoupled: best on the low edge of the sweep"


@pytest.mark.parametrize("returned", ["abc", {"loss": 1.0}, 1j, 10**400])
def test_what_is_no_loss_is_told(returned, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the objective must return a validation loss, or one per epoch, got "):
        dst_lab.tune(lambda **_: returned, tau_f=[1.0, 2.0], store=tmp_path / "t.sqlite")


def test_a_worker_tells_an_error_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the objective raised OddError: out and of luck"):
        dst_lab.tune(odd, tau_f=[0.0, 0.5, 1.0], seeds=1, workers=2, store=tmp_path / "t.sqlite")
