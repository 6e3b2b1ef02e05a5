"""The page and the commands around it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dst_lab.cli.commands.sweep  # noqa: F401 - bound before a test replaces what it imports
import planted
import pytest
from dst_lab.claims import Verdict
from dst_lab.records import Rows
from dst_lab.report import page, pick_scale
from dst_lab.store import Store
from invented import put, record
from studies import PAPER
from studies.paper.claims import judge
from studies.paper.recipes import RECIPES

GRID = RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)
HOSTILE = '</script><img src=x onerror="window.hacked=1"><b>\'&'


@pytest.fixture(scope="module")
def text(everything: Path) -> str:
    return build(everything)


def build(path: Path, scale: str = "quick") -> str:
    with Store.open(path) as store:
        rows = PAPER.rows(store, scale)
        return page(PAPER, rows)


def test_everything_is_on_the_page(text: str) -> None:
    for anchor in ("main", "answer", "verdicts", "figures", "settings", "reproduce", "provenance"):
        assert f'id="{anchor}"' in text
    assert text.count('<details class="verdict') == 17
    assert text.count("<figure id=") == 13
    assert "dst reproduce lab/studies/paper --scale quick" in text
    assert "dst sweep sbn-grid --study lab/studies/paper --scale quick" in text
    assert 'class="verdict supported"' in text, "the planted optimum is off the diagonal"


def test_a_caution_stands_beside_the_verdict(everything: Path) -> None:
    def judged(rows: Rows) -> list[Verdict]:
        return [replace(one, caution="most of it <burnt>") if i == 0 else one for i, one in enumerate(judge(rows))]

    with Store.open(everything) as store:
        text = page(replace(PAPER, rules=(judged,)), PAPER.rows(store, "quick"), {})
    assert text.count("Caution: most of it &lt;burnt&gt;.") == 1
    assert len(re.findall(r"supported, with caution</a>", text)) == 1


def test_nothing_is_fetched(text: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)
    assert "@import" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert "<script" not in text
    assert len(text.encode()) < 3e6


def test_ids_are_unique(text: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for used in set(re.findall(r'(?:href="|url\()#([^")]+)', text)):
        assert used in ids, used


def test_text_from_configs_is_escaped(tmp_path: Path) -> None:
    place = {"device_name": HOSTILE, "commit": HOSTILE, "system": HOSTILE, "seconds": 1.0}
    hostile = record({}, {"name": HOSTILE}, task=HOSTILE, dataset=HOSTILE, provenance=place)
    failed = record({}, {"name": HOSTILE}, task="stochastic-binary", dataset=HOSTILE, status="failed")
    put(tmp_path / "hostile.sqlite", hostile, failed)
    text = build(tmp_path / "hostile.sqlite")
    assert "<img" not in text
    assert "&lt;/script&gt;&lt;img src=x" in text
    assert "</script>" not in text


def test_scale_is_the_papers_where_there_are_such_runs(tmp_path: Path) -> None:
    with Store.open(tmp_path / "mixed.sqlite", write=True) as store:
        store.put(map(planted.record, RECIPES.plans["bias-variance"]("quick").wanted(lambda _: None)))
        assert pick_scale(PAPER, store) == "quick", "both scales have these runs, and quick no others of this recipe"
        store.put([planted.record(GRID[0])])
        assert pick_scale(PAPER, store) == "quick", "only the quick scale has this run"
        own = replace(RECIPES.plans["sbn-grid"]("paper").wanted(lambda _: None)[0], dataset="digits", epochs=12)
        store.put([planted.record(own)])
        assert pick_scale(PAPER, store) == "quick", "a run of one's own that is like the paper's is none of its recipes"
        store.put([planted.record(RECIPES.plans["sbn-grid"]("paper").wanted(lambda _: None)[0])])
        assert pick_scale(PAPER, store) == "paper"


def test_a_store_without_runs_of_the_scale_is_said_to_have_none(
    tmp_path: Path, cli: Callable[..., Any], surroundings: Path
) -> None:
    path = put(tmp_path / "quick.sqlite", *map(planted.record, GRID[:7]))
    done = cli("report", "--study", "paper", "--store", path, "--scale", "paper", "--out", "new/folder/page.html")
    assert done.code == 0, done.err
    assert "0 runs of paper scale" in done.out
    assert "dst: no recipe of paper scale wants 7 of the store's 7 runs" in done.err
    text = (surroundings / "new" / "folder" / "page.html").read_text()
    assert "<strong>No runs of paper scale</strong>" in text
    assert "<dt>Runs</dt><dd>0</dd>" in text


def test_without_time_the_report_is_of_what_is_there(cli: Callable[..., Any], surroundings: Path) -> None:
    done = cli("reproduce", "paper", "--budget", 0, "--store", "none.sqlite", "--out", "here")
    assert done.code == 3, done.err
    assert "runs left: sbn-grid 60" in done.err
    assert "not tested" in (surroundings / "here" / "report.html").read_text()


def test_what_cannot_be_written_is_said_before_the_work(
    everything: Path, cli: Callable[..., Any], surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rows, "of", lambda *_: pytest.fail("the store was read first"))
    (surroundings / "file").write_text("mine")
    done = cli("report", "--study", "paper", "--store", everything, "--out", "file/page.html")
    assert done.code == 2
    assert "file" in done.err
