"""Stores that are damaged, from somebody else, or hold metrics that are not finite."""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from dst_lab.cards import shown
from dst_lab.cli.terminal import Console
from dst_lab.store import Record, Series, Store, blob
from invented import decoupled, put, record

RUN = ("run", "stochastic-binary", "--epochs", 1, "--hidden", 8, "--seeds", 1, "--threads", 1)
REFUSING = [
    ("show",),
    ("export", "--out", "new.csv"),
    ("report", "--out", "new.html"),
    ("claims", "--study", "paper"),
    ("copy", "new.sqlite"),
    ("sweep", "stochastic-binary", "--grid", "epochs=1", "--seeds", 1, "--dry-run"),
    RUN,
]


def losses(seed: int) -> dict[str, Series]:
    return {"validation_loss": Series(np.arange(1, 9), np.random.default_rng(seed).standard_normal(8))}


@pytest.fixture
def runs(surroundings) -> list[str]:
    """The ids of three runs in whole.sqlite, two of which ended worse than untrained."""
    config = {"task": "stochastic-binary", "estimator": {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7}, "lr": 1e30}
    records = [
        Record(
            config={**config, "seed": seed},
            status="done",
            detail={"worse_than_untrained": {"last": 3.5 + seed}} if seed else {},
            history=losses(seed),
            provenance={"commit": f"c{seed}"},
        )
        for seed in range(3)
    ]
    with Store.open("whole.sqlite", write=True) as store:
        store.put(records)
    return [record.run_id for record in records]


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize(
    "what",
    [b'worse_than_untrained":{"last":4.5', b'{"commit":"c1"}', blob.pack_history(losses(1))],
    ids=["detail", "provenance", "history"],
)
def test_a_flipped_byte_is_noticed_by_every_command(what, bit, runs, cli, surroundings) -> None:
    raw = bytearray(Path("whole.sqlite").read_bytes())
    (at,) = (place for place in range(len(raw)) if raw.startswith(what, place))
    raw[at + len(what) - 3] ^= bit
    Path("harmed.sqlite").write_bytes(raw)
    before = set(surroundings.iterdir())
    for words in REFUSING:
        ended = cli(*words, "--store", "harmed.sqlite")
        assert (ended.code, runs[1] in ended.err) == (2, True), (words, ended)
    assert set(surroundings.iterdir()) == before
    assert Path("harmed.sqlite").read_bytes()[100:] == raw[100:], "all but the head of the file"
    assert cli("show", "--store", "whole.sqlite").code == 0


LOSSES = {0.1: 3.0, 0.2: np.nan, 0.3: 1.0, 0.4: np.inf, 0.5: np.nan, 0.6: 2.0}


def both(lr: float, value: float) -> list[Record]:
    """Two seeds."""
    metrics = {"validation_loss": [9.0, 1.0 / lr], "test_loss": [value, value]}
    return [record(metrics, decoupled(1.0), seed=seed, lr=lr) for seed in (0, 1)]


@pytest.fixture
def store(cli) -> Path:
    return put("dst.sqlite", *(one for lr, value in LOSSES.items() for one in both(lr, value)))


def test_what_is_no_number_comes_last_and_the_others_in_their_order(store, cli) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = json.loads(cli("show", "--metric", "test_loss", "--json").out)
    assert [row["lr"] for row in shown] == [0.3, 0.6, 0.1, 0.4, 0.2, 0.5]
    assert [(row["n"], row["mean"]) for row in shown] == [(2, 1.0), (2, 2.0), (2, 3.0), (2, None), (2, None), (2, None)]


def test_a_page_is_made_all_the_same(store, cli) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = cli("report", "--out", "page.html")
    assert (told.code, told.err) == (0, "")
    put("nan.sqlite", *both(0.2, np.nan))
    assert cli("report", "--store", "nan.sqlite", "--out", "nan.html").code == 0
    assert "test loss at the end" in Path("nan.html").read_text(encoding="utf-8")


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
    put(path, record({metric: [1.0, 1.0]}, **{"task": "stochastic-binary", **fields}))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_text_of_a_store_is_printed_as_it_is(name, cli) -> None:
    for field in ("dataset", "task"):
        path = Path(f"{field}.sqlite")
        _put(path, **{field: name})
        ended = cli("show", "--store", path, "--group", f"{field},estimator")
        assert ended.code == 0
        assert f"│ {shown(name)} " in ended.out
        assert not set(ended.out) & set("\x1b\x07\r\x9b\u202e")
    ended = cli("show", "--csv", "--store", "dataset.sqlite", "--group", "dataset")
    assert [row["dataset"] for row in csv.DictReader(ended.out.splitlines())] == [shown(name)]
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
    assert cli("export", "--out", "rows.csv").code == 0
    with open("rows.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["dataset"] for line in lines} == {'\'=HYPERLINK("x")', "'+1", "'-2+3", "'@sum", "plain=1"}
    assert {line["metric"] for line in lines} == {"'=loss"}
    _put(Path("negative.sqlite"), offset=-2.0, label=-3)
    cli("export", "--store", "negative.sqlite", "--out", "numbers.csv")
    with open("numbers.csv", newline="") as file:
        (line, *_) = csv.DictReader(file)
    assert (line["offset"], line["label"]) == ("-2.0", "-3"), "numbers are left alone"
