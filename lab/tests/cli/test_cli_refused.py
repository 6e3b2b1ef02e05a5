"""What cannot be done is a sentence on stderr and exit code 2; no traceback, and nothing left behind."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import studies  # noqa: F401  registers the studies that are named here
import torch

RUN = ("run", "stochastic-binary", "--seeds", 1, "--epochs", 1)
SWEEP = ("sweep", "stochastic-binary", "--seeds", 1, "--grid")
AXES = "tau_f, tau_b, lr, dataset, batch, optimiser, weight_decay, lr_schedule, warmup, hidden, epochs, diagnose_every"
RECIPE = ("sweep", "sbn-grid", "--study", Path(__file__).parents[2] / "studies/paper")
LOGIC = ("run", "logic-gates", "--seeds", 1, "--steps", 2)


def last_words(value: object) -> str:
    return " ".join(map(str, value[-2:])) if isinstance(value, tuple) else ""


REFUSED: list[tuple[tuple[Any, ...], str]] = [
    ((*RUN, "--tau-f", "-1"), "tau_f: a temperature must be finite and at least 0, got -1.0"),
    ((*RUN, "--tau-f", "hot"), "tau_f: a temperature is a number or start:end:shape, such as "),
    ((*RUN, "--tau-f", "nan"), "tau_f: a temperature must be finite and at least 0, got nan"),
    ((*RUN, "--tau-f", "1:2:square"), "tau_f: a schedule is one of constant, linear, cosine, exponential"),
    ((*RUN, "--tau-b", "0"), "tau_b must stay above 0, got tau_b=0.0"),
    ((*RUN, "--tau-b", "1:0:linear"), "tau_b must stay above 0, got tau_b=1.0:0.0:linear"),
    ((*RUN, "--tau", "1"), "--estimator decoupled takes --tau-f and --tau-b, got --tau"),
    ((*RUN, "--estimator", "softmax-ste", "--tau-f", "1"), "--estimator softmax-ste takes --tau, got --tau-f"),
    ((*RUN, "--estimator", "identity-ste", "--tau", "1"), "identity-ste takes no temperature, got --tau"),
    ((*RUN, "--estimator", "all", "--tau-f", "1"), "all takes each estimator's own temperatures, got --tau-f"),
    ((*RUN, "--estimator", "nope"), "unknown estimator name 'nope': expected one of "),
    (
        (*RUN, "--seeds", "many"),
        "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got 'many'",
    ),
    ((*RUN, "--seeds", "0"), "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got '0'"),
    ((*RUN, "--seeds", "-2"), "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got '-2'"),
    (
        (*RUN, "--seeds", "1,5-3"),
        "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got '1,5-3'",
    ),
    ((*RUN, "--seeds", ","), "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got ','"),
    (
        (*RUN, "--seeds", "1.5"),
        "--seeds takes a number above 0, a list such as 3,7,11 or a range such as 5-7, got '1.5'",
    ),
    ((*RUN, "--seeds", "3,-1"), "seed must be at least 0, got -1"),
    ((*RUN, "--seeds", f"{2**32},"), "seed must be below 2**32"),
    ((*RUN, "--lr", "0"), "lr must be above 0, got lr=0.0"),
    ((*RUN, "--lr", "inf"), "lr must be a finite number, got inf"),
    ((*RUN, "--hidden", "16,0"), "hidden must be at least 1, got 0"),
    ((*RUN, "--batch", "5000"), "batch must be at most the 1280 images there are to train on, got batch=5000"),
    ((*LOGIC, "--batch", "5000"), "batch must be at most the 1280 images there are to train on, got batch=5000"),
    ((*LOGIC, "--width", "33"), "width must be a multiple of the 10 classes, got width=33"),
    ((*LOGIC, "--wiring", "odd"), "wiring must be unique or random, got 'odd'"),
    ((*RUN, "--dataset", "letters"), "there is no data set 'letters': choose one of digits, mnist"),
    ((*RUN, "--store", "no/such/folder.sqlite"), "the folder "),
    ((*RUN, "--store", "."), "is not a file: a store is one file"),
    ((*SWEEP, "tau_f=hot"), "with a whole number of steps, at most 10,000, got 'tau_f=hot'"),
    ((*SWEEP, "tau_f=-1,1"), "tau_f: a temperature must be finite and at least 0, got -1.0"),
    ((*SWEEP, "tau_f=0:inf:1"), "with a whole number of steps, at most 10,000, got 'tau_f="),
    ((*SWEEP, "colour=1,2"), f"stochastic-binary with decoupled has no axis colour: choose among {AXES}"),
    ((*SWEEP, "estimator=soft"), f"stochastic-binary with decoupled has no axis estimator: choose among {AXES}"),
    ((*SWEEP, "seed=7,8"), "seed is no axis: every setting is trained with the seeds that --seeds names"),
    ((*SWEEP, "hidden=32x,64"), "hidden takes values such as 64x64,200 with commas between, got '32x,64'"),
    ((*SWEEP, "dataset=digits,mnist"), "on one data set: sweep them one by one, got 'dataset=digits,mnist'"),
    (
        (*SWEEP, "dataset=digits-whole"),
        "a grid would choose by test images: sweep digits, then `dst run --dataset digits-",
    ),
    ((*SWEEP, "tau_f=3", "tau_f=4"), "the axis tau_f is given twice: write its values one after the other"),
    ((*SWEEP, "tau_f=3,4", "--tau-f", 2), "tau_f is an axis, and given by --tau-f too: leave one of them out"),
    ((*SWEEP, "tau_f=0:1e9:0.001"), "an axis is name=a,b,c or name=from:to:step with a whole number of steps, at most"),
    ((*SWEEP, "tau_f=2:0.1:odd"), "a temperature takes schedules such as 2:0.1:linear and rules (self, confidence) as"),
    ((*SWEEP, "tau_b=1,0:0.5:exponential"), "an exponential schedule cannot begin or end at 0, got 0.0 and 0.5"),
    ((*SWEEP, "tau_b=self:high=x"), "the constant high of the rule self takes a number, got 'x'"),
    (
        ("run", "polynomial", "--estimator", "reinmax", "--tau-f", "confidence"),
        "the rule confidence may set tau_f to 0, the argmax, which ReinMax has no form for",
    ),
    (
        (*SWEEP, "lr=self"),
        "an axis is name=a,b,c or name=from:to:step with a whole number of steps, at most 10,000, got",
    ),
    ((*SWEEP, "dataset=letters"), "there is no data set 'letters': choose one of digits, mnist"),
    (("sweep", "logic-gates", "--grid", "wiring=odd"), "wiring must be unique or random, got 'odd'"),
    ((*SWEEP, "batch=64,5000"), "batch must be at most the 1280 images there are to train on, got batch=5000"),
    ((*SWEEP, "tau_f=0,1", "--estimator", "all"), "a sweep is over one estimator's temperatures, got --estimator all"),
    (SWEEP[:-1], "sweep stochastic-binary needs one of --grid"),
    ((*SWEEP, "tau_f=0,1", "--adaptive", "tau_b=1:2"), "sweep stochastic-binary needs one of --grid"),
    ((*SWEEP[:-1], "--adaptive", "tau_f=0.1"), "the axis of a search is name=low:high, such as tau_f=0.05:3, got "),
    ((*SWEEP[:-1], "--adaptive", "tau_f=0:2"), "tau_f needs a lowest value above 0 and a higher highest, got 0.0 and"),
    (
        (*SWEEP[:-1], "--adaptive", "tau=1:2"),
        "stochastic-binary with decoupled has no axis tau: choose among tau_f, tau_b",
    ),
    ((*SWEEP[:-1], "--adaptive", "epochs=1:9"), "has no axis epochs: choose among tau_f, tau_b, lr"),
    ((*SWEEP[:-1], "--adaptive", "seed=1:9"), "seed is no axis: every setting is trained with the seeds that --seeds"),
    ((*RECIPE, "--task", "logic-gates"), "sbn-grid has no runs of logic-gates: its runs are of stochastic"),
    ((*SWEEP, "tau_f=0,1", "--halving", "--settings", "8"), "--settings and --halving goes with --adaptive"),
    ((*RECIPE, "--adaptive", "tau_f=1:2"), "--adaptive goes with a task, not with the recipe sbn-grid"),
    ((*RECIPE, "--seeds", "2"), "the recipe sbn-grid has its own, got --seeds: leave out, or sweep a task"),
    ((*RECIPE, "--estimator", "decoupled", "--tau-f", "1"), "has its own, got --estimator and --tau-f"),
    ((*SWEEP, "tau_f=0,1", "--task", "logic-gates"), "--task goes with a recipe, and stochastic-binary with --grid is"),
    (
        ("show", "--where", "tau_f"),
        "a condition is FIELD=VALUE, or a comparison such as tau_f<=0.3 or seed!=0, got 'tau_f'",
    ),
    (("show",), "there is no store at "),
    (("export", "--format", "csv", "--out", "rows.csv"), "there is no store at "),
    (("copy", "copy.sqlite"), "there is no store at "),
    (("merge", "other.sqlite"), "there is no store at "),
    (("data", "prepare", "letters", "--out", "x.npz"), "there is no data set 'letters'"),
    (("data", "prepare", "digits", "--thresholds", "0", "--out", "x.npz"), "thresholds must be from 1 to 254, got 0"),
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*RUN, "--colour", "red"), "unrecognized arguments: --colour red"),
        # An abbreviation of --seeds would train seeds 0 to 6.
        ((*RUN, "--seed", "7"), "unrecognized arguments: --seed 7"),
        ((*LOGIC, "--epochs", "3"), "unrecognized arguments: --epochs 3"),
        ((*RUN, "--epochs", "few"), "argument --epochs: epochs takes int, got 'few'"),
        ((*RUN, "--hidden", "16,"), "argument --hidden: hidden takes whole numbers with commas between, got '16,'"),
        ((*RUN, "--device", "tpu"), "argument --device: invalid choice: 'tpu'"),
        ((*RUN, "--threads", "0"), "argument --threads: takes a whole number, at least 1, got '0'"),
        ((*RUN, "--fleet", "0"), "argument --fleet: takes a whole number, at least 1, got '0'"),
        ((*RUN, "--fleet", "1.5"), "argument --fleet: takes a whole number, at least 1, got '1.5'"),
        ((*RUN, "--checkpoint-seconds", "-1"), "argument --checkpoint-seconds: takes a number, at least 0, got '-1'"),
        ((*RUN, "--checkpoint-seconds", "nan"), "argument --checkpoint-seconds: takes a number, at least 0, got 'nan'"),
        ((*SWEEP, "tau_f=1", "--budget", "nan"), "argument --budget: takes a number, at least 0, got 'nan'"),
        ((*SWEEP, "tau_f=1", "--budget", "-1"), "argument --budget: takes a number, at least 0, got '-1'"),
        (("run", "nothing"), "argument TASK: invalid choice: 'nothing'"),
        (("walk",), "argument COMMAND: invalid choice: 'walk'"),
        (("export", "--format", "xml", "--out", "x"), "argument --format: invalid choice: 'xml'"),
    ],
    ids=last_words,
)
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


@pytest.mark.parametrize("words", [(*RUN, "--dataset", "mnist"), ("data", "prepare", "mnist", "--out", "x.npz")])
def test_data_that_are_missing(words, cli, surroundings, tmp_path) -> None:
    code, _, err = cli(*words)
    said = only_sentence(err)
    folder = tmp_path / "cache" / "decoupled-st" / "mnist"
    assert f"mnist is not whole in {folder}: train-images-idx3-ubyte, train-labels-idx1-ubyte, " in said
    assert f"bring it there by: curl --create-dirs --output-dir {folder} -O 'https://" in said
    assert code == 2
    assert list(surroundings.iterdir()) == []


@pytest.mark.parametrize("what", ["text", "sqlite", "empty folder", "cut short", "scribbled"])
@pytest.mark.parametrize(
    "words", [RUN, ("show",), ("merge", "other.sqlite"), ("copy", "copy.sqlite")], ids=lambda w: w[0]
)
def test_a_file_that_is_no_store_is_left_as_it_is(words, what, cli, surroundings, tmp_path) -> None:
    path = surroundings / "dst.sqlite"
    other = tmp_path / "other.sqlite"
    assert cli(*RUN, "--store", other).code == 0
    if words[0] == "merge":
        words = ("merge", other)
    if what == "text":
        path.write_text("my notes\n" * 100)
    elif what == "sqlite":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE mine (x)")
        connection.close()
    elif what == "empty folder":
        path.mkdir()
    else:
        whole = other.read_bytes()
        damaged = whole[: len(whole) // 2] if what == "cut short" else whole[:4096] + b"\x55" * (len(whole) - 4096)
        path.write_bytes(damaged)
    before = path.read_bytes() if path.is_file() else None
    code, _, err = cli(*words)
    said = only_sentence(err)
    assert str(path) in said
    expected = {"text": "is not a dst store", "sqlite": "is not a dst store", "empty folder": "is not a file"}
    assert expected.get(what, "damaged") in said
    assert code == 2
    assert (path.read_bytes() if path.is_file() else None) == before
    assert list(surroundings.iterdir()) == [path]


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder that not even root can write")
def test_a_place_that_cannot_be_written(cli) -> None:
    code, _, err = cli(*RUN, "--store", "/sys/kernel/dst.sqlite")
    assert "/sys/kernel/dst.sqlite cannot be written" in only_sentence(err)
    assert code == 2


def test_an_export_to_nowhere(cli, surroundings) -> None:
    assert cli(*RUN).code == 0
    for out in ("no/such/rows.csv", ".", "dst.sqlite"):
        code, said, err = cli("export", "--format", "csv", "--out", out)
        assert str((surroundings / out).resolve()) in only_sentence(err)
        assert (code, said) == (2, "")
    code, _, err = cli("copy", "dst.sqlite")
    assert "is the store itself" in only_sentence(err)
    assert [path.name for path in surroundings.iterdir()] == ["dst.sqlite"]


def test_a_field_or_metric_that_no_run_has(cli) -> None:
    assert cli(*RUN).code == 0
    assert "no run has the field 'colour'" in only_sentence(cli("show", "--where", "colour=red").err)
    assert "no run has the field 'colour'" in only_sentence(cli("show", "--group", "colour").err)
    for metric in ("loss_of_face", "foo"):
        ended = cli("show", "--metric", metric)
        assert f"no run has the metric '{metric}'; there are gradient_norm, inactive, " in only_sentence(ended.err)
        assert ended.err.rstrip().endswith("validation_loss_argmax.")
    undecided = only_sentence(cli("show", "--metric", "gradient_norm", "--at", "best").err)
    assert undecided.startswith("dst: whether a high or a low 'gradient_norm' is best is not known")
    assert "Ask for each run's last value (--at last)" in undecided
    assert "gradient_norm (last of each run)" in cli("show", "--metric", "gradient_norm").out


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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "runs.sqlite"), "runs.sqlite; a store goes after --store (`dst show --help` says what there is)"),
        (("show", "--colour", "red"), "--colour red (`dst show --help` says what there is)"),
        (("copy", "b", "--deep"), "--deep (`dst copy --help` says what there is)"),
        (("run", "polynomial", "--width=3"), "--width=3 (`dst run polynomial --help` says what there is)"),
    ],
)
def test_an_unknown_argument_leads_to_the_help_of_its_command(words, sentence, cli) -> None:
    ended = cli(*words)
    assert ended.code == 2
    assert f"dst: unrecognized arguments: {sentence}" in ended.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("shw",), "invalid choice: 'shw', did you mean show?"),
        (("run", "stochastic-binry"), "invalid choice: 'stochastic-binry', did you mean stochastic-binary?"),
        (("run", "polynomial", "--targt", 3), "--targt 3, did you mean --target?"),
    ],
)
def test_what_is_almost_right_is_named(words, meant, cli) -> None:
    ended = cli(*words)
    assert ended.code == 2
    assert meant in ended.err


def test_a_sweep_says_where_a_field_of_the_task_goes(cli) -> None:
    told = cli("sweep", "stochastic-binary", "--grid", "tau_f=1", "--epochs", 3)
    assert told.code == 2
    assert "--epochs 3; a field of the task is an axis here, of one value too: --grid epochs=X" in told.err
    assert "; a field" not in cli("sweep", "stochastic-binary", "--grid", "tau_f=1", "--foo", 3).err
