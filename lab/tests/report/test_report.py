"""The page and the commands around it, without a browser."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dst_lab.cli.commands.sweep  # noqa: F401 - bound before a test replaces what it imports
import numpy as np
import planted
import pytest
from dst_lab import train as trained
from dst_lab.claims import Verdict
from dst_lab.cli.commands import report as word
from dst_lab.cli.commands import run
from dst_lab.estimators import Choice
from dst_lab.figures import draw
from dst_lab.fleet.loop import TrainingStoppedError
from dst_lab.records import Rows
from dst_lab.report import figures, page, pick_scale
from dst_lab.report.commands import run_command
from dst_lab.runs import CONFIGS
from dst_lab.store import Record, Series, Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from dst_lab.train import Followed
from studies import PAPER
from studies.paper.claims import judge
from studies.paper.recipes import RECIPES

HOSTILE = '</script><img src=x onerror="window.hacked=1"><b>\'&'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted.plant(tmp_path_factory.mktemp("report") / "planted.sqlite")


@pytest.fixture(scope="module")
def text(path: Path) -> str:
    return build(path)


def build(path: Path, scale: str = "quick") -> str:
    with Store.open(path) as store:
        rows = PAPER.rows(store, scale)
        return page(PAPER, rows)


def embedded(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_everything_is_on_the_page(text: str) -> None:
    for anchor in ("main", "answer", "verdicts", "figures", "settings", "runs", "reproduce", "provenance"):
        assert f'id="{anchor}"' in text
    assert text.count('<details class="verdict') == 17
    assert text.count("<figure id=") == 13
    assert "dst reproduce lab/studies/paper --scale quick" in text
    assert "dst sweep sbn-grid --study lab/studies/paper --scale quick" in text
    assert 'class="verdict supported"' in text, "the planted optimum is off the diagonal"


def test_a_data_set_is_named_once_with_or_without_images_held_out(text: str) -> None:
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", text))
    said = "scikit-learn&#39;s digits; nothing held out in 140 of 1,232 runs: validation is the test images"
    assert facts["Data"] == said


def test_other_tasks_by_their_names_and_no_data_set_of_a_task_that_reads_none(tmp_path: Path) -> None:
    with Store.open(tmp_path / "others.sqlite", write=True) as store:
        for task in ("polynomial", "categorical-vae"):
            config = CONFIGS[task](estimator=Choice.make("reinmax", tau_f=1.0, tau_b=1.0))
            history = {"validation_loss": Series([1, 2], np.array([40.631, 40.632]))}
            store.put([Record(config=config.to_dict(), status="done", history=history)])
        rows = PAPER.rows(store, "quick")
        wanted = figures(PAPER, rows)
        text = page(PAPER, rows, draw({name: wanted[name] for name in wanted if "vae" in name}, rows))
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", text))
    assert facts["Data"] == "scikit-learn&#39;s digits"
    assert ">Categorical VAE</h3>" in text
    assert ">Polynomial programming</h3>" in text
    assert "n = 1 seed each" in text
    assert "<!-- 40.63" in text, "ticks are whole numbers, without an offset to be added"


def test_a_caution_stands_beside_the_verdict(path: Path) -> None:
    def judged(rows: Rows) -> list[Verdict]:
        return [replace(one, caution="most of it <burnt>") if i == 0 else one for i, one in enumerate(judge(rows))]

    with Store.open(path) as store:
        text = page(replace(PAPER, rules=(judged,)), PAPER.rows(store, "quick"), {})
    assert text.count("Caution: most of it &lt;burnt&gt;.") == 1
    assert len(re.findall(r"supported, with caution</a>", text)) == 1


def test_nothing_is_fetched(text: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)
    assert "@import" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert len(text.encode()) < 4e6


@pytest.mark.slow
def test_the_same_store_gives_the_same_page(path: Path, text: str) -> None:
    assert build(path) == text


def test_ids_are_unique(text: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for used in set(re.findall(r'(?:href="|url\()#([^")]+)', text)):
        assert used in ids, used


def test_text_from_configs_is_escaped(tmp_path: Path) -> None:
    config = {"task": HOSTILE, "estimator": {"name": HOSTILE}, "seed": 0, "dataset": HOSTILE, "lr": 0.1}
    failed = {**config, "task": "stochastic-binary", "seed": 1}
    with Store.open(tmp_path / "hostile.sqlite", write=True) as store:
        place = {"device_name": HOSTILE, "commit": HOSTILE, "system": HOSTILE, "seconds": 1.0}
        store.put([Record(config=config, status="done", provenance=place), Record(config=failed, status="failed")])
    text = build(tmp_path / "hostile.sqlite")
    assert "<img" not in text
    assert embedded(text)["settings"][0]["facts"]["task"] == HOSTILE
    assert "&lt;/script&gt;&lt;img src=x" in text
    assert text.count("</script>") == 2, "the data and the program"


def test_nothing_on_the_page_obeys_a_text_from_a_config(tmp_path: Path) -> None:
    odd = "a\x1b[31m\x07\u202eb"
    config = {"task": odd, "estimator": {"name": odd, "tau_f": f"1:{odd}", "tau_b": 1.0}, "seed": 0, "lr": 0.1}
    with Store.open(tmp_path / "odd.sqlite", write=True) as store:
        history = {"validation_loss": Series([1, 2], np.array([1.0, 0.5]))}
        store.put([Record(config=config, status="done", history=history)])
    text = build(tmp_path / "odd.sqlite")
    assert not set(text) & set("\x1b\x07\u202e")
    assert "\\x1b[31m" in text
    assert not set(json.dumps(embedded(text), ensure_ascii=False)) & {"\u202e"}
    assert "\\u001b" not in json.dumps(embedded(text))


def test_runs_are_all_there_with_their_numbers(path: Path, text: str) -> None:
    data = embedded(text)
    place = {column["title"]: c for c, column in enumerate(data["columns"])}
    with Store.open(path) as store:
        runs = store.runs()
        assert [one["id"] for one in data["runs"]] == [run.id for run in runs]
        for i in range(0, len(runs), 97):
            history, shown = store.history(runs[i].id), data["runs"][i]
            lowest = shown["cells"][place["Lowest val. loss"]]
            assert lowest == pytest.approx(history["validation_loss"].values.min(), rel=1e-8)
            if "test_loss" in history:
                assert data["metrics"]["test_loss"][i] == pytest.approx(history["test_loss"].values[-1], rel=1e-8)
            assert data["settings"][shown["setting"]]["facts"]["task"] == runs[i].task
    assert {one["plan"] for one in data["runs"]} == set(RECIPES.plans)
    assert len(data["claims"]) == text.count('<details class="verdict') == 17
    assert all(len(set(of)) == len(of) >= 20 for of in data["claims"])


def test_each_command_names_its_run(path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]) -> None:
    """Read by `dst run` itself, the command of a run gives the config of that run, of every kind of plan."""
    asked: list[Any] = []

    def train(configs: list[Any], *_: Any) -> Any:
        asked.extend(configs)
        return SimpleNamespace(failed={}, left=0)

    monkeypatch.setattr(run, "train", train)
    with Store.open(path) as store:
        runs = store.runs()[::61]
    assert len({found.task for found in runs}) == 4
    for found in runs:
        words = run_command(found.config).split()
        assert words[:2] == ["dst", "run"]
        assert cli(*words[1:]).code == 0
        assert asked.pop().to_dict() == found.config


def test_a_command_names_a_default_that_the_scale_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of adam does not mention it; at a scale of radam, as a task of one's own may have, its command must."""
    scale = {**StochasticBinaryConfig.paper(), "optimiser": "radam"}
    monkeypatch.setattr(StochasticBinaryConfig, "paper", classmethod(lambda cls: scale))
    plain = StochasticBinaryConfig(**{**scale, "optimiser": "adam"}, estimator=Choice.make("soft", tau=1.0))
    assert "--scale paper --estimator soft --tau 1.0 --optimiser adam --seeds" in run_command(plain.to_dict())
    assert "--optimiser" not in run_command(replace(plain, optimiser="radam").to_dict())


def test_a_command_for_a_task_of_a_file_is_that_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dst` by itself does not know it."""
    config = StochasticBinaryConfig(estimator=Choice.make("soft", tau=1.0)).to_dict()
    monkeypatch.setattr(StochasticBinaryConfig, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/somewhere/my_task.py"))
    assert run_command(config).startswith("python my_task.py run stochastic-binary --scale quick ")


def test_scale_is_the_papers_where_there_are_such_runs(tmp_path: Path) -> None:
    with Store.open(tmp_path / "mixed.sqlite", write=True) as store:
        store.put(map(planted.record, RECIPES.plans["bias-variance"]("quick").wanted(lambda _: None)))
        assert pick_scale(PAPER, store) == "quick", "both scales have these runs, and quick no others of this recipe"
        store.put([planted.record(RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)[0])])
        assert pick_scale(PAPER, store) == "quick", "only the quick scale has this run"
        own = replace(RECIPES.plans["sbn-grid"]("paper").wanted(lambda _: None)[0], dataset="digits", epochs=12)
        store.put([planted.record(own)])
        assert pick_scale(PAPER, store) == "quick", "a run of one's own that is like the paper's is none of its recipes"
        store.put([planted.record(RECIPES.plans["sbn-grid"]("paper").wanted(lambda _: None)[0])])
        assert pick_scale(PAPER, store) == "paper"


def test_a_store_without_runs_of_the_scale_is_said_to_have_none(
    tmp_path: Path, cli: Callable[..., Any], surroundings: Path
) -> None:
    with Store.open(tmp_path / "quick.sqlite", write=True) as store:
        store.put(map(planted.record, RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)[:7]))
    done = cli(
        "report",
        "--study",
        "paper",
        "--store",
        tmp_path / "quick.sqlite",
        "--scale",
        "paper",
        "--out",
        "new/folder/page.html",
    )
    assert done.code == 0, done.err
    assert "0 runs of paper scale" in done.out
    assert "dst: 7 of the store's 7 runs are not of paper scale" in done.err
    text = (surroundings / "new" / "folder" / "page.html").read_text()
    assert "<strong>No runs of paper scale</strong>" in text
    assert "<dt>Runs</dt><dd>0</dd>" in text


@pytest.mark.slow
def test_report_writes_page_and_figures(path: Path, cli: Callable[..., Any], surroundings: Path) -> None:
    done = cli("report", "--study", "paper", "--store", path, "--out", "page.html", "--figures", "figures")
    assert done.code == 0, done.err
    assert "quick scale" in done.out
    assert (surroundings / "page.html").read_text().startswith("<!doctype html>")
    assert len(list((surroundings / "figures").iterdir())) == 26
    assert cli("report", "--study", "paper", "--store", "nowhere.sqlite").code == 2


def test_reproduce_follows_every_recipe_and_confirms_last(
    path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], surroundings: Path
) -> None:
    plans = [RECIPES.plans[name]("quick") for name in RECIPES.needed]
    followed: list[Any] = []

    def follow(plan: Any, *_: Any) -> Followed:
        followed.append(plan)
        rounds: list[Any] = [SimpleNamespace(failed={"a run": "why"} if plan == plans[6] else {}, left=0)]
        return Followed(done=True, rounds=rounds, notes=[], left=0, wanted=1)

    monkeypatch.setattr(trained, "follow", follow)
    monkeypatch.setattr(word, "write", lambda study, _, *told, overwrite: print(study.name, *told))
    done = cli("reproduce", "paper", "--store", path, "--out", "here")
    assert followed == plans
    assert RECIPES.needed[-1] == "confirm"
    assert not {*RECIPES.needed} & {"annealed", "details", "catae-rate"}
    assert done.code == 1, "the worst of the recipes' own"
    assert "paper quick here/report.html here/figures" in done.out
    assert "[7/11] diagonal: " in done.out

    def interrupted(*_: Any) -> None:
        followed.append(None)
        raise TrainingStoppedError(saved=True)

    followed.clear()
    monkeypatch.setattr(trained, "follow", interrupted)
    assert cli("reproduce", "paper", "--store", path, "--out", "here").code == 130
    assert len(followed) == 1, "stopped by Ctrl-C, it stops"


def test_without_time_the_report_is_of_what_is_there(cli: Callable[..., Any], surroundings: Path) -> None:
    done = cli("reproduce", "paper", "--budget", 0, "--store", "none.sqlite", "--out", "here")
    assert done.code == 3, done.err
    assert "runs left: sbn-grid 60" in done.err
    assert "not tested" in (surroundings / "here" / "report.html").read_text()


@pytest.mark.slow
def test_reproduced_already_it_trains_nothing_and_writes_the_report(
    path: Path, cli: Callable[..., Any], surroundings: Path
) -> None:
    done = cli("reproduce", "paper", "--store", path, "--out", "here")
    assert done.code == 0, done.err
    assert " trained" not in done.out
    assert "runs left" not in done.err
    assert (surroundings / "here" / "figures" / "map.svg").exists()
    assert (surroundings / "here" / "report.html").exists()


def test_what_cannot_be_written_is_said_before_the_work(
    path: Path, cli: Callable[..., Any], surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rows, "of", lambda *_: pytest.fail("the store was read first"))
    (surroundings / "notes.html").write_text("mine")
    (surroundings / "file").write_text("mine")
    for out, said in (("notes.html", "exists already, and is not a page made by `dst report`"), ("file/page.html", "")):
        done = cli("report", "--study", "paper", "--store", path, "--out", out)
        assert done.code == 2
        assert said in done.err
        assert out.partition("/")[0] in done.err
    assert (surroundings / "notes.html").read_text() == "mine"
    figures = surroundings / "figures"
    figures.mkdir()
    (figures / "map.svg").write_text("a text of mine")
    done = cli("report", "--study", "paper", "--store", path, "--figures", figures)
    assert done.code == 2
    assert "figures/map.svg exists already, and is not a figure made by `dst report`" in done.err


def test_a_page_is_written_over_its_own(tmp_path: Path, cli: Callable[..., Any], surroundings: Path) -> None:
    with Store.open(surroundings / "dst.sqlite", write=True) as store:
        store.put(map(planted.record, RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)[:3]))
    assert cli("report", "--study", "any").code == 0
    first = (surroundings / "report.html").read_text()
    assert cli("report", "--study", "any").code == 0
    assert (surroundings / "report.html").read_text() == first
    (surroundings / "report.html").write_text("mine")
    assert cli("report", "--study", "any").code == 2
    assert cli("report", "--study", "any", "--overwrite").code == 0
    assert (surroundings / "report.html").read_text() == first
