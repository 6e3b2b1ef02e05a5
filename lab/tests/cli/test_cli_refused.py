"""What cannot be done is a sentence on stderr and exit code 2; no traceback, and nothing left behind."""

import sys
from pathlib import Path
from typing import Any

import pytest
import studies  # noqa: F401  registers the studies that are named here
import torch
from invented import put

RUN = ("run", "stochastic-binary", "--seeds", 1, "--epochs", 1)
SWEEP = ("sweep", "stochastic-binary", "--seeds", 1, "--grid")
SEARCH = (*SWEEP[:-1], "--adaptive")
RECIPE = ("sweep", "sbn-grid", "--study", Path(__file__).parents[2] / "studies/paper")
LOGIC = ("run", "logic-gates", "--seeds", 1, "--steps", 2)
AN_AXIS = "an axis is name=a,b,c or name=from:to:step with a whole number of steps, at most 10,000, got 'tau_f="


def last_words(value: object) -> str:
    return " ".join(map(str, value[-2:])) if isinstance(value, tuple) else ""


REFUSED: list[tuple[tuple[Any, ...], str]] = [
    ((*RUN, "--tau-f", "hot"), "tau_f: a temperature is a number or start:end:shape, such as "),
    ((*RUN, "--tau-b", "0"), "tau_b must stay above 0, got tau_b=0.0"),
    ((*RUN, "--tau", "1"), "--estimator decoupled takes --tau-f and --tau-b, got --tau"),
    ((*RUN, "--estimator", "softmax-ste", "--tau-f", "1"), "--estimator softmax-ste takes --tau, got --tau-f"),
    ((*RUN, "--estimator", "all", "--tau-f", "1"), "all takes each estimator's own temperatures, got --tau-f"),
    ((*RUN, "--estimator", "nope"), "unknown estimator name 'nope': expected one of "),
    ((*RUN, "--seeds", "many"), "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got"),
    ((*RUN, "--batch", "5000"), "batch must be at most the 1280 images there are to train on, got batch=5000"),
    ((*LOGIC, "--width", "33"), "width must be a multiple of the 10 classes, got width=33"),
    ((*RUN, "--ray-address", "auto", "--workers", 2), "--ray-address and --workers goes with --engine ray"),
    ((*RUN, "--dataset", "letters"), "there is no data set 'letters': choose one of digits, mnist"),
    ((*RUN, "--store", "no/such/folder.sqlite"), "the folder "),
    ((*SWEEP, "tau_f=hot"), f"{AN_AXIS}hot'"),
    ((*SWEEP, "tau_f=0:1e9:0.001"), AN_AXIS),
    (
        (*SWEEP, "colour=1,2"),
        "stochastic-binary with decoupled has no axis colour: choose among tau_f, tau_b, lr",
    ),
    ((*SWEEP, "seed=7,8"), "seed is no axis: every setting is trained with the seeds that --seeds names"),
    ((*SWEEP, "hidden=32x,64"), "hidden takes values such as 64x64,200 with commas between, got '32x,64'"),
    ((*SWEEP, "dataset=digits,mnist"), "on one data set: sweep them one by one, got 'dataset=digits,mnist'"),
    ((*SWEEP, "dataset=digits-whole"), "a grid would choose by test images: sweep digits, then `dst run --dataset dig"),
    ((*SWEEP, "tau_f=3", "tau_f=4"), "the axis tau_f is given twice: write its values one after the other"),
    ((*SWEEP, "tau_f=3,4", "--tau-f", 2), "tau_f is an axis, and given by --tau-f too: leave one of them out"),
    ((*SWEEP, "tau_f=2:0.1:odd"), "a temperature takes schedules such as 2:0.1:linear and rules (self, confidence) as"),
    ((*SWEEP, "tau_f=0,1", "--estimator", "all"), "a sweep is over one estimator's temperatures, got --estimator all"),
    (SWEEP[:-1], "sweep stochastic-binary needs one of --grid"),
    ((*SEARCH, "tau_f=0.1"), "the axis of a search is name=low:high, such as tau_f=0.05:3, got "),
    ((*SEARCH, "tau_f=0:2"), "tau_f needs a lowest value above 0 and a higher highest, got 0.0 and"),
    ((*SEARCH, "epochs=1:9"), "has no axis epochs: choose among tau_f, tau_b, lr"),
    ((*SEARCH, "tau_f=0.1:1", "hidden=16,8x8"), "an adaptive search varies numbers and words, got hidden: vary it by"),
    ((*RECIPE, "--task", "logic-gates"), "sbn-grid has no runs of logic-gates: its runs are of stochastic"),
    ((*RECIPE, "--adaptive", "tau_f=1:2"), "--adaptive goes with a task, not with the recipe sbn-grid"),
    ((*RECIPE, "--seeds", "2"), "the recipe sbn-grid has its own, got --seeds: leave out, or sweep a task"),
    ((*SWEEP, "tau_f=0,1", "--settings", "8"), "--settings goes with --adaptive"),
    ((*SWEEP, "tau_f=0,1", "--task", "logic-gates"), "--task goes with a recipe, and stochastic-binary with --grid is"),
    (("show",), "there is no store at "),
    (("copy", "copy.sqlite"), "there is no store at "),
    (("merge", "other.sqlite"), "there is no store at "),
]
PARSER = [
    # An abbreviation of --seeds would train seeds 0 to 6.
    ((*RUN, "--seed", "7"), "unrecognized arguments: --seed 7, did you mean --seeds?"),
    ((*LOGIC, "--epochs", "3"), "unrecognized arguments: --epochs 3"),
    ((*RUN, "--epochs", "few"), "argument --epochs: epochs takes int, got 'few'"),
    ((*RUN, "--hidden", "16,"), "argument --hidden: hidden takes whole numbers with commas between, got '16,'"),
    ((*RUN, "--fleet", "1.5"), "argument --fleet: takes a whole number, at least 1, got '1.5'"),
    ((*RUN, "--checkpoint-seconds", "nan"), "argument --checkpoint-seconds: takes a number, at least 0, got 'nan'"),
    ((*SWEEP, "tau_f=1", "--budget", "-1"), "argument --budget: takes a number, at least 0, got '-1'"),
    (("shw",), "invalid choice: 'shw' (choose from "),
    (("show", "runs.sqlite"), "unrecognized arguments: runs.sqlite (`dst show --help` lists the options)"),
]


def only_sentence(err: str) -> str:
    """The one line that `dst` said."""
    (line,) = [line for line in err.splitlines() if line.strip()]
    assert line.startswith("dst: ")
    return line


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=last_words)
def test_a_sentence_and_nothing_left(words, sentence, cli, surroundings) -> None:
    code, out, err = cli(*words)
    assert sentence in only_sentence(err)
    assert code == 2
    assert out == ""
    assert list(surroundings.rglob("*")) == []


@pytest.mark.parametrize(("words", "sentence"), PARSER, ids=last_words)
def test_what_the_parser_refuses(words, sentence, cli, surroundings) -> None:
    code, out, err = cli(*words)
    assert sentence in err.splitlines()[-1]
    assert code == 2
    assert out == ""
    assert list(surroundings.rglob("*")) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none(cli, surroundings) -> None:
    code, _, err = cli(*RUN, "--device", "cuda")
    assert "--device cuda: torch sees no CUDA device here; leave it out, or take --device cpu" in only_sentence(err)
    assert code == 2
    assert list(surroundings.iterdir()) == []


@pytest.mark.parametrize(
    "words", [RUN, ("show",), ("merge", "other.sqlite"), ("copy", "copy.sqlite")], ids=lambda w: w[0]
)
def test_a_file_that_is_no_store_is_left_as_it_is(words, cli, surroundings) -> None:
    """What is refused and what damage is said, the tests of the store go through."""
    path = surroundings / "dst.sqlite"
    path.write_text("my notes\n" * 100)
    if words[0] == "merge":
        put(surroundings.with_name("other.sqlite"))
        words = ("merge", surroundings.with_name("other.sqlite"))
    code, _, err = cli(*words)
    assert f"{path}" in only_sentence(err)
    assert "is not a dst store" in err
    assert code == 2
    assert path.read_text() == "my notes\n" * 100
    assert list(surroundings.iterdir()) == [path]


def test_without_ray_it_says_what_to_install(cli, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = cli(*RUN, "--engine", "ray")
    assert only_sentence(err) == 'dst: --engine ray needs Ray: pip install "dst-lab[ray]"'
    assert code == 2
    assert list(Path().iterdir()) == []


def test_the_traceback_is_there_for_who_asks(cli) -> None:
    code, _, err = cli("--debug", *RUN, "--tau-f", "hot")
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("dst: tau_f: a temperature is a number")
    assert code == 2


def test_what_nobody_expected_is_exit_code_1(cli, monkeypatch, surroundings: Path) -> None:
    from dst_lab.engines.local import LocalEngine

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bolt is loose")

    monkeypatch.setattr(LocalEngine, "train", broken)
    code, _, err = cli(*RUN)
    assert only_sentence(err) == "dst: unexpected RuntimeError: a bolt is loose (`dst --debug ..` shows where)"
    assert code == 1
