"""What is added from outside, without touching src/: a study, a metric, a task; and a page for any store."""

import html
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import studies  # noqa: F401  registers the studies that are named here
from dst_lab.cards import METRICS, TASK_CARDS
from dst_lab.plans import Recipes
from dst_lab.report import Study, known
from dst_lab.runs import CONFIGS
from dst_lab.store import Record
from dst_lab.tasks import TASKS
from invented import decoupled, put, record

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "own_task.py"


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toy() -> Iterator[ModuleType]:
    """The toy study, registered for one test, over a task of one's own that measures one thing more."""
    tables: list[dict[str, Any]] = [TASKS, CONFIGS, METRICS, TASK_CARDS, known.STUDIES]
    before = [dict(table) for table in tables]
    try:
        routing = load(EXAMPLE, "own_task").Routing
        evaluate = routing.evaluate

        def wobbling(self: Any, parameters: Any, choosers: Any) -> Any:
            metrics = evaluate(self, parameters, choosers)
            return metrics | {"validation_wobble": 1 / (1 + metrics["validation_loss"])}

        routing.evaluate = wobbling
        module = load(HERE / "toy" / "study.py", "toy_study")
        known.register(module.TOY)
        module.register_cards()
        yield module
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)


def test_a_study_of_ones_own_is_reproduced_judged_shown_and_reported(
    toy: ModuleType, cli: Callable[..., Any], surroundings: Path
) -> None:
    done = cli("reproduce", "toy", "--threads", 1, "--out", "out")
    assert done.code == 0, done.err
    assert "[1/1] toy-grid: Routing: a small grid over both temperatures." in done.out
    assert {file.name for file in (surroundings / "out" / "figures").iterdir()} == {
        f"toy-{name}.{kind}" for name in ("bars", "map") for kind in ("png", "svg")
    }
    text = (surroundings / "out" / "report.html").read_text()
    assert "<h1>A toy: what the records say</h1>" in text
    assert "Does a toy learn?" in text
    assert "<h3>What a toy says</h3>" in text
    assert '<th scope="row"><i>τ</i><sub>f</sub>\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.5</th><td><b>' in text
    assert "Each bar is one of 8 runs." in text
    assert "dst reproduce toy --scale quick" in text
    assert '<a href="#tables">Tables</a>' in text
    assert "Temperature map, toy routing" in text
    assert "wobble of the output at the end (%)" in text, "a metric of its own has a map with its own words"
    assert "τf = " in text
    assert cli("sweep", "toy-grid", "--threads", 1).out.strip().endswith("every run that is wanted so far")
    said = cli("claims", "--study", "toy").out
    assert "T1 on routing: A sharper draw is better" in said
    assert "not tested     T1" in said, "four pairs have no p of 0.025, however they come out"
    assert "against a softer one, lowest validation loss: " in said
    assert "validation_wobble (last of each run)" in cli("show", "--metric", "validation_wobble").out


def test_a_study_takes_no_name_and_no_recipe_of_another(toy: ModuleType) -> None:
    taken = Study(name="other", title="", recipes=Recipes({"sbn-grid": toy.toy_grid}))
    with pytest.raises(ValueError, match="the study paper has a recipe called 'sbn-grid' already"):
        known.register(taken)
    with pytest.raises(ValueError, match="there is a study called 'paper' already"):
        known.register(Study(name="paper", title=""))
    assert known.register(toy.TOY) is toy.TOY, "the same one again may"
    changed = replace(toy.TOY, title="Another", recipes=Recipes())
    said = "there is a study called 'toy' already, which differs in title, recipes: give"
    with pytest.raises(ValueError, match=said):
        known.register(changed)
    assert known.study("toy") is toy.TOY
    assert known.register(changed, replace=True) is known.study("toy")


def test_commands_of_a_study_of_a_file_are_that_files(
    toy: ModuleType, cli: Callable[..., Any], surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dst` by itself does not know its recipes."""
    monkeypatch.setattr(toy.toy_grid, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/somewhere/my study.py"))
    put("dst.sqlite", own("routing", 0.5, 0.5, steps=20))
    assert cli("report", "--study", "toy").code == 0
    text = html.unescape((surroundings / "report.html").read_text())
    assert "python 'my study.py' reproduce toy --scale quick" in text
    assert "python 'my study.py' sweep toy-grid --scale quick" in text
    assert "dst sweep" not in text
    assert "dst reproduce" not in text
    assert "missing: `python 'my study.py' sweep toy-grid --scale quick`" in cli("claims", "--study", "toy").out


def own(task: str, tau_f: float, tau_b: float, seed: int = 0, status: str = "done", **fields: Any) -> Record:
    """A run of a task that nobody registered."""
    loss = abs(tau_f - 0.5) + abs(tau_b - 1.0) + 0.01 * seed + 1 / np.arange(1, 5)
    metrics = {"validation_loss": loss, "validation_error": loss / 10, "trouble": loss * 0 + 7}
    estimator = decoupled(tau_f, tau_b)
    return record(metrics if status == "done" else {}, estimator, status=status, task=task, seed=seed, **fields)


def test_any_store_has_a_page_with_curves_a_map_and_a_table(cli: Callable[..., Any], surroundings: Path) -> None:
    put("dst.sqlite", *(own("weather-vane", f, b, s) for f in (0.5, 1.0) for b in (1.0, 2.0) for s in (0, 1)))
    put("dst.sqlite", own("weather-vane", 2.0, 2.0, 0, "diverged"))
    put("dst.sqlite", record([2.0, 1.0], {"name": "softer_than_known", "tau": 2.0}, task="weather-vane"))
    done = cli("report", "--figures", "figures")
    assert done.code == 0, done.err
    assert "report.html: 10 runs, " in done.out
    assert done.err == ""
    names = {f"weather-vane-{name}" for name in ("curves", "decoupled-map")}
    assert {file.stem for file in (surroundings / "figures").iterdir()} == names
    text = (surroundings / "report.html").read_text()
    assert "<h1>Runs of a store: what the records say</h1>" in text
    assert '<h2 id="tasks-title">Tasks</h2>' in text
    assert "Weather vane" in text
    assert "softer than known" in text
    assert "verdict" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "The lowest mean loss, 0.255, lies at τf = 0.5, τb = 1." in text
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th><td>(.*?)</td>\s*<td class=\"num\">(.*?)</td>", text)
    assert [row[0] for row in rows].count("Decoupled ST") == 5
    assert "0.2550 ± 0.0071" in text
    assert "1 diverged" in text
    answer = text[text.index('id="answer"') : text.index('id="tasks"')]
    assert "<b>0.2550 ± 0.0071</b>" in answer, "the best setting first"
    assert "n = 2 seeds unless said otherwise" in answer.replace("\N{NO-BREAK SPACE}", " ")
