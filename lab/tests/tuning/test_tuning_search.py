"""Searches over somebody's own objective: resume, divergence, workers, edits."""

import importlib.util
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dst_lab
import pytest
from dst_lab.records import versions
from dst_lab.store import Store
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


def test_a_loss_that_is_not_finite_is_diverged_and_not_chosen(tmp_path: Path) -> None:
    def objective(tau_f: float, tau_b: float, seed: int) -> float:
        return math.nan if tau_f == 0.5 else Counted()(tau_f, tau_b, seed)[1]

    result = dst_lab.tune(objective, **GRID, seeds=1, store=tmp_path / "t.sqlite")
    assert result.tau_f != 0.5
    with Store.open(tmp_path / "t.sqlite") as store:
        assert {run.config["estimator"]["tau_f"] for run in store.runs(status="diverged")} == {0.5}


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
    from own_objective import bowl, odd
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
    deadline = time.monotonic() + 15
    while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


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


def test_a_worker_tells_an_error_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the objective raised OddError: out and of luck"):
        dst_lab.tune(odd, tau_f=[0.0, 0.5, 1.0], seeds=1, workers=2, store=tmp_path / "t.sqlite")
