"""An objective with other values bound to it is another one, which tuning says."""

import hashlib
import importlib
import inspect
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dst_lab
import numpy as np
import pytest
from dst_lab.store import Record, Series, Store
from torch import nn

WIDTH = {"tau_f": [0.5, 1.0], "seeds": 1, "plan": "grid"}


def closure(width: float, log: list[float] | None = None):
    def objective(tau_f: float, seed: int) -> float:
        if log is not None:
            log.append(tau_f)
        return abs(tau_f - 0.5 * width)

    return objective


def inner_closure(width: float):
    near = closure(width)
    return lambda tau_f, seed: near(tau_f, seed)


def nested(width: float):
    options = {"widths": [width, {"last": width}]}

    def objective(tau_f: float, seed: int) -> float:
        return abs(tau_f - 0.5 * options["widths"][0])

    return objective


def inside_a_comprehension(width: float):
    globals()["wide"] = width
    return lambda tau_f, seed: sum([abs(tau_f - 0.5 * wide) for _ in range(1)])  # noqa: F821


def module_wide(width: float):
    globals()["wide"] = width
    return lambda tau_f, seed: abs(tau_f - 0.5 * wide)  # noqa: F821


def default(width: float):
    return lambda tau_f, seed, width=width: abs(tau_f - 0.5 * width)


def keyword_default(width: float):
    return lambda tau_f, seed, *, width=width: abs(tau_f - 0.5 * width)


class Holder:
    def __init__(self, width: float) -> None:
        self.width, self.calls, self.network = width, 0, object()

    def __call__(self, tau_f: float, seed: int) -> float:
        self.calls += 1
        return abs(tau_f - 0.5 * self.width)

    def method(self, tau_f: float, seed: int) -> float:
        return self(tau_f, seed)


def class_wide(width: float):
    class Trainer:
        wide = width

        def train(self, tau_f: float, seed: int) -> float:
            return abs(tau_f - 0.5 * self.wide)

    return Trainer().train


def inherited(width: float):
    class Base:
        wide = width

    class Trainer(Base):
        __slots__ = ("own",)

        @classmethod
        def train(cls, tau_f: float, seed: int) -> float:
            return abs(tau_f - 0.5 * cls.wide)

    return Trainer.train


class Private:
    __slots__ = ("__width",)

    def __init__(self, width: float) -> None:
        self.__width = width

    def __call__(self, tau_f: float, seed: int) -> float:
        return abs(tau_f - 0.5 * self.__width)


@dataclass(frozen=True, slots=True)
class Slotted:
    width: float

    def __call__(self, tau_f: float, seed: int) -> float:
        return abs(tau_f - 0.5 * self.width)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (class_wide, "self.wide"),
        (inherited, "self.wide"),
        (Private, "self._Private__width"),
        (Slotted, "self.width"),
        (lambda width: closure(np.bool_(width > 1)), "width"),
        (lambda width: module_wide(np.float32(width)), "wide"),
        (lambda width: closure(np.int64(width)), "width"),
        (closure, "width"),
        (inner_closure, "near"),
        (nested, "options"),
        (inside_a_comprehension, "wide"),
        (module_wide, "wide"),
        (default, "width"),
        (keyword_default, "width"),
        (Holder, "self.width"),
        (lambda width: Holder(width).method, "self.width"),
        (lambda width: partial(Holder(width)), "self.width"),
    ],
)
def test_what_an_objective_holds_is_not_taken_for_something_else_in_silence(make, named: str, tmp_path: Path) -> None:
    given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": "mine"}
    result = dst_lab.tune(make(1), **given)
    assert dst_lab.tune(make(1), **given) == result, "the same values are no change"
    told = rf"2 of the 2 runs of 'mine' .* or with other values bound to it \({named}\), and are taken as they are"
    with pytest.warns(UserWarning, match=told):
        assert dst_lab.tune(make(2), **given) == result


def test_a_function_whose_source_is_in_no_file_is_told_by_its_code(tmp_path: Path) -> None:
    """As of `python - <<E`, twice the same, in processes whose sets of texts have another order, and once another."""
    text = (
        "import sys, warnings, dst_lab\n"
        "warnings.simplefilter('error')\n"
        "def train(tau_f, seed): return (tau_f - {best}) ** 2 + (str(seed) in {{'a', 'b', 'c'}})\n"
        "result = dst_lab.tune(train, tau_f=[0.5, 1.0], seeds=1, plan='grid', store='t.sqlite')\n"
        "print(result.tau_f)\n"
    )
    ends = []
    for best in (0.5, 0.5, 1.0):
        done = subprocess.run(
            [sys.executable, "-"], input=text.format(best=best), cwd=tmp_path, capture_output=True, text=True
        )
        ends.append((done.stdout.strip(), "trained by another source" in done.stderr))
    assert ends == [("0.5", False), ("0.5", False), ("", True)]


def test_the_code_of_another_python_is_no_other_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is that of a function which it calls from a closure. Warnings are errors here."""
    space: dict[str, Any] = {}
    exec("def make(near): return lambda tau_f, seed: near(tau_f)\nnear = lambda tau_f: abs(tau_f - 0.5)", space)
    given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": "mine"}
    result = dst_lab.tune(space["make"](space["near"]), **given)
    monkeypatch.setattr(sys.implementation, "cache_tag", "another")
    assert dst_lab.tune(space["make"](space["near"]), **given) == result


def test_an_attribute_of_a_base_in_another_module_is_the_objectives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "its_base.py").write_text("class Base:\n    wide = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    base = importlib.import_module("its_base").Base

    class Mine(base):
        def __call__(self, tau_f: float, seed: int) -> float:
            return abs(tau_f - 0.5 * self.wide)

    given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": "mine"}
    result = dst_lab.tune(Mine(), **given)
    monkeypatch.setattr(base, "wide", 2)
    with pytest.warns(UserWarning, match=r"other values bound to it \(self.wide\)"):
        assert dst_lab.tune(Mine(), **given) == result


def test_what_a_library_defines_is_not_the_objectives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Network(nn.Module):
        def forward(self, tau_f: float, seed: int) -> float:
            return abs(tau_f - 0.5)

    given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": "mine"}
    result = dst_lab.tune(Network(), **given)
    monkeypatch.setattr(nn.Module, "_version", 2)
    assert dst_lab.tune(Network(), **given) == result


def test_what_an_objective_changes_itself_is_no_change(tmp_path: Path) -> None:
    """Warnings are errors here: a log that a closure fills and a count of calls are its own."""
    log: list[float] = []
    for name, objective in (("log", closure(1, log)), ("object", holder := Holder(1)), ("method", holder.method)):
        given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": name}
        dst_lab.tune(objective, **given)
        dst_lab.tune(objective, **given | {"tau_f": [0.5, 2.0]})
    assert log == [0.5, 1.0, 2.0]
    holder.width = 2
    with pytest.warns(UserWarning, match=r"3 of the 3 runs of 'object' .* bound to it \(self.width\)"):
        dst_lab.tune(holder, **given | {"name": "object"})


def test_an_objective_may_close_over_itself(tmp_path: Path) -> None:
    values: list[Any] = [1]
    values.append(values)

    def objective(tau_f: float, seed: int) -> float:
        return objective(tau_f / 2, seed) if tau_f > values[0] else tau_f

    for _ in range(2):
        assert dst_lab.tune(objective, **WIDTH, store=tmp_path / "t.sqlite").tau_f == 0.5


def test_runs_of_earlier_versions_say_nothing_of_values(tmp_path: Path) -> None:
    """What such a run was bound to is not known, and its source is told as ever."""
    given = {**WIDTH, "store": tmp_path / "t.sqlite", "name": "mine"}
    for make in (closure, default):
        with Store.open(given["store"], write=True) as store:
            for tau_f in WIDTH["tau_f"]:
                config = {"task": "own", "estimator": {"name": "decoupled", "tau_f": tau_f}, "seed": 0, "lr": 1.0}
                config |= {"objective": "mine", "dataset": "", "batch": 1}
                loss = {"validation_loss": Series(np.array([1]), np.array([tau_f]))}
                text = hashlib.sha256(inspect.getsource(make(1)).encode()).hexdigest()[:16]
                origin = {"started": "2025-01-01T00:00:00Z", "source": text, "seconds": 0.1}
                store.put([Record(config=config, status="done", history=loss, provenance=origin)])
        assert dst_lab.tune(make(1), **given).tau_f == 0.5
        given |= {"store": tmp_path / "other.sqlite"}
