"""dst export, copy, merge, rm, data and circuit, end to end."""

import csv
from pathlib import Path

import dst_lab
import planted
import pytest
import torch
from dst_lab import data
from dst_lab.figures import write
from dst_lab.plans import FRESH
from dst_lab.store import Record, Series, Store
from studies import PAPER
from studies.paper.figures import reconstructions

from decoupled_st import circuits

SBN = ("run", "stochastic-binary", "--epochs", 2, "--hidden", "16,16", "--diagnose-every", 1, "--threads", 1)
LOGIC = ("run", "logic-gates", "--width", 160, "--steps", 4, "--evaluate-every", 2, "--threads", 1)


@pytest.fixture
def store(cli) -> Path:
    """Two tasks, three estimators, two seeds each."""
    for words in ((*SBN,), (*SBN, "--estimator", "softmax-ste"), (*LOGIC, "--estimator", "gumbel-ste")):
        assert cli(*words, "--seeds", 2).code == 0
    return Path("dst.sqlite")


def test_export_has_the_rows_that_were_asked_for(store, cli) -> None:
    ended = cli("export", "--out", "rows.csv")
    with open("rows.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert ended.out == f"{len(lines):,} rows in rows.csv\n"
    assert {(line["task"], line["lr"], line["hidden"]) for line in lines} == {
        ("stochastic-binary", "0.003", "[16, 16]"),
        ("logic-gates", "0.03", ""),
    }
    taus = {(line["estimator"], line["tau_f"], line["tau_b"]) for line in lines}
    assert taus == {("decoupled", "0.1", "0.7"), ("softmax_ste", "0.2", "0.2"), ("gumbel_ste", "1.0", "0.5")}
    some = ("--where", "task=logic-gates", "--metric", "validation_loss", "gate_histogram")
    assert cli("export", "--out", "some.csv", *some).code == 0
    with open("some.csv", newline="") as file:
        chosen = [(line["task"], line["metric"].partition("[")[0]) for line in csv.DictReader(file)]
    assert set(chosen) == {("logic-gates", "validation_loss"), ("logic-gates", "gate_histogram")}
    assert len(chosen) == 2 * 2 * (1 + 16)
    assert "Did you mean" in cli("export", "--out", "no.csv", "--metric", "validation_los").err


def test_copy_and_merge(store, cli, rows) -> None:
    assert cli("copy", "copy.sqlite").code == 0
    assert rows(Path("copy.sqlite")) == rows(store)
    assert "exists already" in cli("copy", "copy.sqlite").err
    assert cli("copy", "copy.sqlite", "--overwrite").code == 0
    again = cli("merge", "copy.sqlite")
    assert again.out == "copy.sqlite: 0 added, 6 already there, 0 replaced\n"
    assert sorted(path.name for path in Path().iterdir()) == ["copy.sqlite", "dst.sqlite"]


def test_a_merge_with_one_wrong_path_changes_nothing(store, cli) -> None:
    before = store.read_bytes()
    cli(*SBN, "--seeds", "8,", "--store", "more.sqlite")
    assert cli("merge", "more.sqlite", "wrong.sqlite").code == 2
    assert store.read_bytes() == before


def test_a_lean_compressed_copy_has_the_figures_and_the_claims(cli, tmp_path) -> None:
    recipes = ("catae-sequential", "catae-baselines", "confirm")
    planted.plant(Path("runs.sqlite"), recipes=recipes)
    assert cli("copy", "--store", "runs.sqlite", "lean.sqlite.xz", "--lean").code == 0
    with Store.open("runs.sqlite") as whole, Store.open("lean.sqlite.xz") as lean:
        fresh = {run.id for run in whole.runs() if run.seed >= FRESH}
        kept = {run.id for run in lean.runs() if lean.artefacts(run.id)}
        assert fresh < kept < {run.id for run in whole.runs()}
        assert len(kept) == len(fresh) + 3 * len(fresh) // 10, "ten fresh seeds and the search's three of each setting"
        pictures = [write(reconstructions.strip(PAPER.rows(store, "quick")).figure, "svg") for store in (whole, lean)]
    assert pictures[0] == pictures[1]
    assert cli("claims", "--store", "runs.sqlite").out == cli("claims", "--store", "lean.sqlite.xz").out


def test_merge_and_rm(store, cli, rows) -> None:
    cli(*SBN, "--seeds", 2, "--store", "other.sqlite")
    with Store.open(store) as opened, Store.open("other.sqlite", write=True) as other:
        (run,) = (one.id for one in other.runs(seed=1))
        other.remove([run])
        found = opened.history(run)
        half = {name: Series(series.steps, series.values / 2) for name, series in found.items()}
        config = next(one.config for one in opened.runs() if one.id == run)
        other.put([Record(config=config, status="done", history=half)])
    kept = rows(store)
    ended = cli("merge", "other.sqlite")
    assert "1 runs of other.sqlite differ from the recorded ones, which stay (--prefer theirs takes" in ended.out
    assert f"  stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=1 ({run})\n" in ended.out
    assert rows(store) == kept
    assert "0 added, 1 already there, 1 replaced" in cli("merge", "other.sqlite", "--prefer", "theirs").out
    assert rows(store)[run] == rows(Path("other.sqlite"))[run]

    ended = cli("rm", "--where", "task=logic-gates")
    assert ended.code == 0
    assert ended.out.startswith("2 runs of dst.sqlite; --yes removes them:\n  logic-gates gumbel_ste tau=0.5 seed=0 (")
    assert ended.out.endswith(") done\n")
    assert len(rows(store)) == 6
    assert cli("rm", "--where", "task=logic-gates", "--yes").out == "2 runs removed from dst.sqlite\n"
    assert cli("rm", run[:9], run, "--yes").out == "1 runs removed from dst.sqlite\n"
    assert len(rows(store)) == 3
    assert run not in rows(store)
    assert "rm takes the ids of runs, or conditions" in cli("rm", "--yes").err
    assert "holds no run 'abc'" in cli("rm", "abc", "--yes").err
    assert cli("rm", "--where", "status=failed", "--yes").out == "0 runs removed from dst.sqlite\n"


GATES = ("run", "logic-gates", "--width", 160, "--steps", 12, "--evaluate-every", 6, "--threads", 1)


def the_run(task: str = "logic-gates") -> str:
    with Store.open(Path("dst.sqlite")) as store:
        return next(run.id for run in store.runs() if run.task == task)


def test_a_kept_network_becomes_a_circuit(cli) -> None:
    cli(*GATES, "--seeds", 1, "--keep")
    done = cli("circuit", "--out", "net.json", "--out", "net.v", "--testbench", "--images", 20)
    assert (done.code, done.err) == (0, "")
    assert "as trained:  320 gates, depth 2" in done.out
    assert "equal to the network on all 261 test images" in done.out
    assert {path.name for path in Path().glob("net*")} == {"net.json", "net.v", "net_tb.v"}
    circuit, network = circuits.load("net.json"), dst_lab.load("dst.sqlite", the_run())
    bits = torch.from_numpy(data.bits(data.load_levels("digits", 3).test.images, 3))
    assert torch.equal(circuit(bits), network(bits.float()).detach())
    assert len(circuit.gates) < 320
    assert circuit.input_names[0] == "channel0.row0.column0>0.25"
    assert circuit.input_names[-1] == "channel0.row7.column7>0.75"
    lines = Path("images.txt").read_text().splitlines()
    assert [[int(digit) for digit in line] for line in lines] == bits[:20].long().tolist()
    winner = cli("circuit", the_run(), "--winner", "--as-trained", "--out", "net.json", "--images", 3)
    assert winner.code == 0
    assert "images.txt, 3 of 261 test images" in winner.out
    assert torch.equal(circuits.load("net.json")(bits), network(bits.float()).argmax(-1))


REFUSED = {
    "keeps 2 logic networks: give the id of one of ": ("circuit",),
    "holds no run 'nope'": ("circuit", "nope"),
    "is of the task stochastic-binary: a circuit is made of a logic-gates network": ("circuit", "BINARY"),
    "--images writes next to the first --out: give one": ("circuit", "LOGIC", "--images", 3),
    "--pipelined changes Verilog alone": ("circuit", "LOGIC", "--pipelined", "--out", "a.c"),
    "ends with one of .c, .v": ("circuit", "LOGIC", "--out", "a.txt"),
    "cannot be written: the folder ": ("circuit", "LOGIC", "--out", "no/a.v"),
}


def test_sentences(cli) -> None:
    cli(*GATES, "--seeds", 2, "--keep")
    cli("run", "stochastic-binary", "--epochs", 1, "--hidden", "16,16", "--threads", 1, "--seeds", 1, "--keep")
    Path("notes.v").write_text("mine")
    before = sorted(path.name for path in Path().iterdir())
    ids = {"BINARY": the_run("stochastic-binary"), "LOGIC": the_run()}
    for message, words in REFUSED.items():
        done = cli(*(ids.get(str(word), word) for word in words))
        assert done.code == 2
        assert message in done.err
        assert done.out == "", "found before the work"
        assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("notes.v").read_text() == "mine"
    cli("run", "polynomial", "--steps", 2, "--passes", 2, "--seeds", 1, "--store", "none.sqlite")
    assert "keeps no network of logic-gates: train one" in cli("circuit", "--store", "none.sqlite").err
