"""A store from somebody else: its text is shown, never obeyed."""

import csv
from pathlib import Path

import numpy as np
import pytest
from dst_lab.cli.terminal.console import Console
from dst_lab.shown import shown
from dst_lab.store import Record, Series, Store

NAMES = (
    "mnist[fold]",
    "a[/b]c",
    "[red]r[/red]",
    ":smile:",
    "\x1b[31mred\x1b]0;title\x07",
    "x\rhidden",
    "a\u202eb\x9bc",
)


def _put(path: Path, *, metric: str = "validation_loss", **fields: str) -> None:
    config = {"task": "stochastic-binary", "estimator": {"name": "soft", "tau": 1.0}, "seed": 0, "lr": 0.1, **fields}
    with Store.open(path, write=True) as store:
        store.put([Record(config=config, status="done", history={metric: Series(np.arange(2), np.ones(2))})])


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_text_of_a_store_is_printed_as_it_is(name, cli) -> None:
    for field in ("dataset", "task"):
        path = Path(f"{field}.sqlite")
        _put(path, **{field: name})
        ended = cli("show", "--store", path, "--group", f"{field},estimator")
        assert ended.code == 0
        assert f"│ {shown(name)} " in ended.out
        assert not set(ended.out) & set("\x1b\x07\r\x9b\u202e")


def test_text_of_a_store_in_an_error_is_printed_as_it_is(cli) -> None:
    _put(Path("dst.sqlite"), metric="loss\x1b[2J[b]")
    for words in (("show",), ("show", "--where", "nothing\x1b[2J=1"), ("show", "--store", "no\x1b[2J.sqlite")):
        ended = cli(*words)
        assert ended.code == 2, words
        assert "\\x1b[2J" in ended.err
        assert "\x1b" not in ended.err


def test_what_is_written_out_can_be_told_from_what_is_not() -> None:
    assert shown("τ_f = 0.5\n\t│ ok é") == "τ_f = 0.5\n\t│ ok é"
    assert shown("\x1b[0m\x85\u2066\ud800") == "\\x1b[0m\\x85\\u2066\\ud800"
    assert Console(width=40).render_str("[b]x[/b] :+1:").plain == "[b]x[/b] :+1:"


def test_a_spreadsheet_takes_no_exported_text_for_a_formula(cli) -> None:
    for name in ('=HYPERLINK("x")', "+1", "-2+3", "@sum", "plain=1"):
        _put(Path("dst.sqlite"), metric="=loss", dataset=name)
    assert cli("export", "--format", "csv", "--out", "rows.csv").code == 0
    with open("rows.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["dataset"] for line in lines} == {'\'=HYPERLINK("x")', "'+1", "'-2+3", "'@sum", "plain=1"}
    assert {line["metric"] for line in lines} == {"'=loss"}
    _put(Path("negative.sqlite"), offset=-2.0, label=-3)
    cli("export", "--store", "negative.sqlite", "--format", "csv", "--out", "numbers.csv")
    with open("numbers.csv", newline="") as file:
        (line, *_) = csv.DictReader(file)
    assert (line["offset"], line["label"]) == ("-2.0", "-3"), "numbers are left alone"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_text_of_a_store_as_csv_on_the_screen_is_not_obeyed(name, cli) -> None:
    _put(Path("dst.sqlite"), dataset=name)
    ended = cli("show", "--csv", "--group", "dataset")
    assert ended.code == 0
    assert [row["dataset"] for row in csv.DictReader(ended.out.splitlines())] == [shown(name)]
    assert not set(ended.out) & set("\x1b\x07\r\x9b\u202e")
