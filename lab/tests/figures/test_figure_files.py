"""Figures in files: `dst` knows its own, and replaces no other without being told to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted
import pytest
from dst_lab.store import Store
from matplotlib.figure import Figure

PNG, SVG = "binary-network-curves.png", "binary-network-curves.svg"


@pytest.fixture
def report(cli: Callable[..., Any]) -> Callable[..., Any]:
    """The page and the figures of three runs."""
    with Store.open("dst.sqlite", write=True) as store:
        store.put(map(planted.record, planted.RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)[:3]))
    return lambda *words: cli("report", "--study", "any", "--figures", "figures", *words)


def test_figures_are_written_over_their_own(report: Callable[..., Any]) -> None:
    assert report().code == 0
    first = {path.name: path.read_bytes() for path in Path("figures").iterdir()}
    assert {PNG, SVG} <= first.keys()
    assert report().code == 0
    assert {path.name: path.read_bytes() for path in Path("figures").iterdir()} == first


@pytest.mark.parametrize("name", [PNG, SVG])
def test_a_figure_that_somebody_else_drew_stays(report: Callable[..., Any], name: str) -> None:
    mine = Path("figures") / name
    mine.parent.mkdir()
    Figure().savefig(mine)
    before = mine.read_bytes()
    done = report()
    assert done.code == 2
    assert f"figures/{name} exists already, and is not a figure made by `dst report`" in done.err
    assert [*mine.parent.iterdir()] == [mine]
    assert mine.read_bytes() == before
    assert report("--overwrite").code == 0
    assert mine.read_bytes() != before


def test_reproduce_replaces_what_is_not_its_own_where_it_is_told_to(cli: Callable[..., Any]) -> None:
    mine = Path("here/report.html")
    mine.parent.mkdir()
    mine.write_text("mine")
    words = ("reproduce", "paper", "--budget", 0, "--store", "none.sqlite", "--out", "here")
    done = cli(*words)
    assert done.code == 2
    assert "replace it with --overwrite" in done.err
    assert mine.read_text() == "mine"
    assert cli(*words, "--overwrite").code == 3
    assert mine.read_text().startswith("<!doctype html>")
