"""The page and the commands around it, without a browser."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from dst_lab.plans.plan import Grid
from dst_lab.records import Rows
from dst_lab.report import figures, page, pick_scale
from dst_lab.report.commands import run_command
from dst_lab.report.known import ANY
from dst_lab.report.sections import MAP
from dst_lab.report.text.prose import prose
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
    for anchor in ("main", "answer", "verdicts", "map", "figures", "settings", "runs", "reproduce", "provenance"):
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
    assert embedded(text)["settings"][0]["task"] == HOSTILE
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
    assert data["notes"] == {}
    with Store.open(path) as store:
        runs = store.runs()
        assert data["runs"]["id"] == [run.id for run in runs]
        for i in range(0, len(runs), 97):
            history = store.history(runs[i].id)
            assert data["runs"]["best"][i] == pytest.approx(history["validation_loss"].values.min(), rel=1e-8)
            if "test_loss" in history:
                assert data["metrics"]["test_loss"][i] == pytest.approx(history["test_loss"].values[-1], rel=1e-8)
    assert {data["plans"][i] for i in data["runs"]["plan"]} == set(RECIPES.plans)


def test_maps_show_losses_at_their_lowest_and_perplexity_at_the_end(path: Path, text: str) -> None:
    maps = {one["task"]: {m["metric"]: m for m in one["measures"]} for one in embedded(text)["maps"]}
    for tau in (0.5, 2.0):
        at = {"name": "decoupled", "tau_f": tau, "tau_b": 1.0}
        with Store.open(path) as store:
            runs = [r for r in store.runs(task="categorical-autoencoder") if r.config["estimator"] == at and r.seed < 3]
            runs = [run for run in runs if not run.config["snr_every"] and run.config["lr"] == 0.002]
            found = [store.history(run.id) for run in runs]
        cells = {
            metric: next(cell for cell in shown["cells"] if cell["at"] == [tau, 1])["mean"]
            for metric, shown in maps["autoencoder, Decoupled ST"].items()
        }
        losses = [history["validation_loss"].values.min() for history in found]
        codes = [history["perplexity"].values[-1].mean() for history in found]
        assert len(found) == 3
        assert cells["validation_loss"] == pytest.approx(sum(losses) / 3, rel=1e-4)
        assert cells["perplexity"] == pytest.approx(sum(codes) / 3, rel=1e-4)
    codes, gates = maps["autoencoder, Decoupled ST"]["perplexity"], maps["logic gates, Decoupled ST"]["gate_perplexity"]
    assert codes["unit"] == gates["unit"] == "at the end"


def test_a_sweep_of_ones_own_has_a_map_and_empty_figures_take_no_room(tmp_path: Path) -> None:
    base = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.5), epochs=7)
    grid = Grid(base, (("tau_f", (0.25, 0.75)), ("tau_b", (0.5, 1.5))), (0, 1))
    other = [replace(base, epochs=9), StochasticBinaryConfig(estimator=Choice.make("softmax_ste", tau=1.0))]
    with Store.open(tmp_path / "own.sqlite", write=True) as store:
        store.put([planted.record(config) for config in other])
    text = build(tmp_path / "own.sqlite")
    assert embedded(text)["maps"] == []
    assert "No sweep of Decoupled ST is in this store yet" in text
    assert '<div class="panels">' not in text
    with Store.open(tmp_path / "own.sqlite", write=True) as store:
        store.put([planted.record(config) for config in grid.wanted(lambda config: None)])
    text = build(tmp_path / "own.sqlite")
    (found,) = embedded(text)["maps"]
    (loss,) = [one for one in found["measures"] if one["metric"] == "validation_loss"]
    assert [cell["at"] for cell in loss["cells"]] == [[0.25, 0.5], [0.25, 1.5], [0.75, 0.5], [0.75, 1.5]]
    assert {cell["n"] for cell in loss["cells"]} == {2}
    assert "Every cell is a setting that was trained" in text
    assert text.count('<div class="panels">') == 1, "the map itself, for paper"
    assert "mean over n = 2 seeds" in text


def test_a_metric_that_never_was_a_number_and_runs_without_a_rate_keep_no_page_from_being_made(
    cli: Callable[..., Any], surroundings: Path
) -> None:
    with Store.open("own.sqlite", write=True) as store:
        for tau_f in (0.1, 0.5, 1.0):
            config = {"task": "somebodys", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": 1.0}, "seed": 0}
            values = {"validation_loss": [2.0, 1.0], "validation_accuracy": [np.nan, np.nan]}
            history = {name: Series([1, 2], np.array(of)) for name, of in values.items()}
            store.put([Record(config=config, status="done", history=history)])
    told = cli("report", "--store", "own.sqlite", "--out", "page.html")
    assert (told.code, told.err) == (0, "")
    (found,) = embedded(Path("page.html").read_text())["maps"]
    assert [cell["at"] for cell in found["measures"][0]["cells"]] == [[0.1, 1.0], [0.5, 1.0], [1.0, 1.0]]


def test_a_metric_without_a_good_end_is_not_said_to_be_better_where_it_is_brighter(tmp_path: Path) -> None:
    with Store.open(tmp_path / "vae.sqlite", write=True) as store:
        for tau_f in (0.1, 0.5, 1.0):
            estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": 1.0}
            config = {"task": "categorical-vae", "estimator": estimator, "seed": 0, "lr": 0.1}
            history = {name: Series([1, 2], np.array([2.0, tau_f])) for name in ("validation_loss", "kl")}
            store.put([Record(config=config, status="done", history=history)])
        text = page(ANY, ANY.rows(store, "quick"))
    (found,) = embedded(text)["maps"]
    assert {one["metric"]: one["good"] for one in found["measures"]} == {"validation_loss": True, "kl": False}
    assert "Brighter is better, but for KL term, where it is higher." in text


def test_the_lowest_of_a_map_is_no_setting_with_a_run_that_diverged(tmp_path: Path) -> None:
    """As in the table of settings beside it, and as plans choose."""
    with Store.open(tmp_path / "own.sqlite", write=True) as store:
        for tau_f in (0.1, 0.5, 1.0):
            for seed in (0, 1):
                estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": 1.0}
                config = {"task": "vane", "estimator": estimator, "seed": seed, "lr": 0.1}
                history = {"validation_loss": Series([1, 2], np.array([2.0, tau_f]))}
                status = "diverged" if (tau_f, seed) == (0.1, 1) else "done"
                store.put([Record(config=config, status=status, history=history)])
        text = page(ANY, ANY.rows(store, "quick"))
    assert "The lowest mean loss of settings without a diverged run, 0.5, lies at τf = 0.5, τb = 1." in text


def test_a_study_without_a_map_carries_no_map(path: Path) -> None:
    study = replace(PAPER, sections=tuple(one for one in PAPER.sections if one.anchor != MAP))
    with Store.open(path) as store:
        text = page(study, study.rows(store, "quick"))
    assert 'id="explorer"' not in text
    assert embedded(text)["maps"] == []


def test_a_sweep_that_shares_cells_with_the_search_is_shown_whole(tmp_path: Path) -> None:
    base = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.5))
    grid = Grid(base, (("tau_f", (0.0, 0.5, 1.0)), ("tau_b", (0.5, 1.0, 2.0))), (0,))
    falling = replace(base, estimator=Choice.make("decoupled", tau_f="1:0.5:linear", tau_b=1.0))
    searched = RECIPES.plans["sbn-grid"]("quick").wanted(lambda config: None)
    wanted = grid.wanted(lambda config: None)
    assert 0 < len({*wanted} & {*searched}) < 9, "some are in the paper's grid"
    with Store.open(tmp_path / "own.sqlite", write=True) as store:
        store.put([planted.record(config) for config in [*wanted, falling]])
    (found,) = embedded(build(tmp_path / "own.sqlite"))["maps"]
    cells = [(*cell["at"], cell["n"]) for cell in found["measures"][0]["cells"]]
    assert cells == [(f, b, 1) for f in (0, 0.5, 1) for b in (0.5, 1, 2)], "without the one on a schedule"


def test_lines_do_not_break_beside_a_sign() -> None:
    assert str(prose("τf = 2, 137 ± 24 (`n = 3`)")) == (
        "<i>τ</i><sub>f</sub>\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2, 137\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}24 "
        "(<code>n = 3</code>)"
    )


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
