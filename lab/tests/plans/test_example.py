"""The worked examples run as they stand."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from dst_lab.runs import CONFIGS
from dst_lab.store import Store
from dst_lab.tasks import TASKS, register
from dst_lab.tasks.stochastic_binary import StochasticBinary


def example(name: str) -> ModuleType:
    root = Path(__file__).parents[3]
    (file,) = (path for folder in ("examples", "lab/examples") for path in (root / folder).glob(f"{name}.py"))
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tuning_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune = example("tune")
    tune.EPOCHS = 1
    tune.main(str(tmp_path / "tune.sqlite"))
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("tau_f=") for line in lines) >= 7
    assert lines[-1].startswith("chosen for own decoupled: tau_f=")


def test_the_example_of_a_logic_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logic, threads = example("logic"), torch.get_num_threads()
    logic.STEPS = 40
    try:
        logic.main(tmp_path)
    finally:
        torch.set_num_threads(threads)
    first, *written = capsys.readouterr().out.splitlines()
    share = float(first.partition("%")[0])
    assert 50 < share < 100, "ten classes: it learns"
    assert first.partition("of ")[2].startswith("297 test images; 1,280 gates, ")
    assert written == [f"written: {tmp_path / name}" for name in ("digits.c", "digits.v")]
    assert (tmp_path / "digits.v").read_text().startswith(("//", "module"))


def test_a_task_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(TASKS), dict(CONFIGS)
    try:
        own = example("own_task")
        with pytest.raises(SystemExit) as left:
            own.main(["run", "routing", "--seeds", "2", "--steps", "400", "--store", str(tmp_path / "own.sqlite")])
        assert left.value.code == 0
        with Store.open(tmp_path / "own.sqlite") as store:
            curves = [store.history(run.id)["validation_loss"].values for run in store.runs()]
        assert [losses[-1] < 0.5 * losses[0] for losses in curves] == [True, True], "both learn"
        example("own_task")  # made anew, as by a notebook
        with pytest.raises(SystemExit) as left:
            own.main(["run", "routing", "--engine", "ray", "--store", str(tmp_path / "ray.sqlite")])
        assert left.value.code == 2
        assert "the engine ray trains in processes that do not know routing" in capsys.readouterr().err
        other = type("Other", (StochasticBinary,), {"config_type": own.RoutingConfig})
        said = r"there is a task called 'routing' already, \S*\.Routing, now \S*\.Other: give .* with replace=True"
        with pytest.raises(ValueError, match=said):
            register(other)
        assert register(other, replace=True) is TASKS["routing"]
        built_in = type("Mine", (StochasticBinary,), {})
        with pytest.raises(ValueError, match=r"stochastic_binary, now \S*\.Mine: give yours another name$"):
            register(built_in, replace=True)
    finally:
        for table, old in zip((TASKS, CONFIGS), before, strict=True):
            table.clear()
            table.update(old)
