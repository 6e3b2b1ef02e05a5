"""`dst show`, `export`, `copy`, `merge` and `data`, end to end."""

import csv
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import planted
import pyarrow.parquet as pq
import pytest
from dst_lab import data
from dst_lab.figures import write
from dst_lab.plans import FRESH
from dst_lab.store import Record, Series, Store
from studies import PAPER
from studies.paper.figures import reconstructions

SBN = ("run", "stochastic-binary", "--epochs", 2, "--hidden", "16,16", "--diagnose-every", 1, "--threads", 1)
LOGIC = ("run", "logic-gates", "--width", 160, "--steps", 4, "--evaluate-every", 2, "--threads", 1)


@pytest.fixture
def store(cli) -> Path:
    """Two tasks, three estimators, two seeds each."""
    for words in ((*SBN,), (*SBN, "--estimator", "softmax-ste"), (*LOGIC, "--estimator", "gumbel-ste")):
        assert cli(*words, "--seeds", 2).code == 0
    return Path("dst.sqlite")


def cells(table: str, word: str) -> list[str]:
    (row,) = [line for line in table.splitlines() if word in line and "│" in line]
    return [cell.strip() for cell in row.split("│")[1:-1]]


def test_show_groups_filters_and_picks(store, cli) -> None:
    table = cli("show", "--group", "task,estimator").out
    assert cells(table, "softmax_ste")[:3] == ["stochastic-binary", "softmax_ste", "2"]
    assert cells(table, "gumbel_ste")[:3] == ["logic-gates", "gumbel_ste", "2"]
    some = cli("show", "--where", "estimator.tau_f=0.1", "--where", "seed=1").out
    assert cells(some, "decoupled")[:6] == ["stochastic-binary", "decoupled", "0.1", "0.7", "0.003", "1"]
    assert "softmax_ste" not in some
    assert cli("show", "--where", "tau_f=0.1", "--where", "seed=1").out == some
    by_tau = cli("show", "--where", "task=stochastic-binary", "--group", "tau_b,tau").out
    assert [cells(by_tau, line)[:3] for line in ("│ 0.7   │", "│       │")] == [["0.7", "", "2"], ["", "0.2", "2"]]
    by_seed = cli("show", "--group", "seed", "--metric", "validation_accuracy", "--at", "last").out
    assert "validation_accuracy (last of each run)" in by_seed
    with Store.open(store) as opened:
        runs = [run.id for run in opened.runs(seed=1)]
        last = [float(opened.history(run)["validation_accuracy"].values[-1]) for run in runs]
    assert cells(by_seed, "│ 1 ")[:3] == ["1", "3", f"{sum(last) / 3:.4g}"]
    assert cli("show", "--where", "seed=77").out == "no runs with validation_loss where seed=77\n"


def test_runs_that_differ_in_any_field_are_not_averaged(store, cli) -> None:
    assert "hidden" not in cli("show").out, "all are alike in it"
    wide = (*SBN[:5], "24,16", *SBN[6:])
    assert cli(*wide, "--seeds", 2).code == 0
    table = cli("show").out
    for hidden in ("[16, 16]", "[24, 16]"):
        (line,) = [line for line in table.splitlines() if "decoupled" in line and hidden in line]
        assert [cell.strip() for cell in line.split("│")[-6:-4]] == [hidden, "2"]


def test_test_data_are_shown_at_the_end_of_training(store, cli) -> None:
    assert "test_accuracy (last of each run)" in cli("show", "--metric", "test_accuracy").out
    assert "test_accuracy (best of each run)" in cli("show", "--metric", "test_accuracy", "--at", "best").out
    assert "validation_accuracy (best of each run)" in cli("show", "--metric", "validation_accuracy").out


def test_show_puts_the_best_first_inside_a_task(store, cli) -> None:
    for metric, sign in (("validation_loss", 1), ("validation_accuracy", -1)):
        table = cli("show", "--metric", metric, "--where", "task=stochastic-binary", "--group", "estimator").out
        means = [float(line.split("│")[3]) for line in table.splitlines() if line.startswith("│")]
        assert len(means) == 2
        assert means == sorted(means, key=lambda mean, sign=sign: sign * mean)


def test_export_has_a_row_for_every_value(store, cli) -> None:
    ended = cli("export", "--format", "csv", "--out", "rows.csv")
    assert ended.code == 0
    with open("rows.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == [
        "run", "task", "estimator", "tau_f", "tau_b", "seed", "step", "metric", "value", "schedule", "status", "batch",
        "dataset", "diagnose_every", "epochs", "evaluate_every", "group_tau", "hidden", "layers", "lr", "residual",
        "steps", "thresholds", "width", "wiring",
    ]  # fmt: skip
    assert {(line[1], line[header.index("lr")], line[header.index("hidden")]) for line in lines} == {
        ("stochastic-binary", "0.003", "[16, 16]"), ("logic-gates", "0.03", ""),
    }  # fmt: skip
    assert ended.out == f"{len(lines):,} rows in rows.csv\n"
    some = ("--where", "task=logic-gates", "--metric", "validation_loss", "gate_histogram")
    assert cli("export", "--format", "csv", "--out", "some.csv", *some).code == 0
    with open("some.csv", newline="") as file:
        chosen = [(line["task"], line["metric"].partition("[")[0]) for line in csv.DictReader(file)]
    assert set(chosen) == {("logic-gates", "validation_loss"), ("logic-gates", "gate_histogram")}
    assert len(chosen) == 2 * 2 * (1 + 16)
    assert "Did you mean" in cli("export", "--format", "csv", "--out", "no.csv", "--metric", "validation_los").err
    taus = {tuple(line[2:5]) for line in lines}
    assert taus == {("decoupled", "0.1", "0.7"), ("softmax_ste", "0.2", "0.2"), ("gumbel_ste", "1.0", "0.5")}
    expected = {}
    with Store.open(store) as opened:
        for run in opened.runs():
            for name, series in opened.history(run.id).items():
                for metric, values in series.components(name):
                    for step, value in zip(series.steps.tolist(), values.tolist(), strict=True):
                        expected[run.id, str(run.seed), str(step), metric] = float(value)
    assert {(line[0], line[5], line[6], line[7]): float(line[8]) for line in lines} == expected
    assert {"inactive_below[0]", "gate_histogram[15]", "train_loss"} <= {line[7] for line in lines}


def test_parquet_says_the_same_as_csv(store, cli) -> None:
    cli("export", "--format", "csv", "--out", "rows.csv")
    assert cli("export", "--format", "parquet", "--out", "rows.parquet").code == 0
    table = pq.read_table("rows.parquet")
    with open("rows.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert table.column_names == header
    columns = [column.to_pylist() for column in table.columns]
    said = [["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)]
    assert said == lines


def test_copy_and_merge(store, cli, rows) -> None:
    assert cli("copy", "copy.sqlite").code == 0
    assert rows(Path("copy.sqlite")) == rows(store)
    assert "exists already" in cli("copy", "copy.sqlite").err
    assert cli("copy", "copy.sqlite", "--overwrite").code == 0
    again = cli("merge", "copy.sqlite")
    assert again.out == "copy.sqlite: 0 added, 6 already there, 0 replaced\n"
    assert sorted(path.name for path in Path().iterdir()) == ["copy.sqlite", "dst.sqlite"]


def test_two_halves_merged_are_the_whole(cli, rows) -> None:
    for seeds, file in (("0,1", "one.sqlite"), ("1,2", "two.sqlite"), ("0,1,2", "whole.sqlite")):
        assert cli(*SBN, "--seeds", seeds, "--store", file).code == 0
    ended = cli("merge", "one.sqlite", "two.sqlite", "--store", "both.sqlite")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "one.sqlite: 2 added, 0 already there, 0 replaced",
        "two.sqlite: 1 added, 1 already there, 0 replaced",
    ]
    assert rows(Path("both.sqlite")) == rows(Path("whole.sqlite"))


def test_a_merge_with_one_wrong_path_changes_nothing(store, cli) -> None:
    before = store.read_bytes()
    cli(*SBN, "--seeds", "8,", "--store", "more.sqlite")
    assert cli("merge", "more.sqlite", "wrong.sqlite").code == 2
    assert store.read_bytes() == before


def test_data_lists_and_prepares(cli, tmp_path) -> None:
    listing = cli("data").out
    assert cells(listing, "digits")[:2] == ["digits", "complete"]
    assert cells(listing, "cifar10")[:2] == ["cifar10", "missing"]
    ended = cli("data", "prepare", "digits", "--thresholds", 2, "--out", "levels.npz")
    assert ended.out.startswith("levels.npz: digits, levels of 2 thresholds, ")
    assert "digits, levels of 2" in " ".join(cli("data", "--data", "levels.npz").out.split())
    prepared, computed = data.load_levels("digits", 2, "levels.npz"), data.load_levels("digits", 2)
    assert (prepared.test.images == computed.test.images).all()


def test_one_file_is_prepared_for_both(cli) -> None:
    ended = cli("data", "prepare", "digits-whole", "--out", "levels.npz")
    assert ended.out.startswith("levels.npz: digits, levels of 3 thresholds, ")
    assert len(data.load_levels("digits-whole", 3, "levels.npz").train) == 1280 + 256


def test_without_images_held_out_there_are_more_and_the_table_says_so(cli) -> None:
    shown, steps = [], []
    for name in ("digits", "digits-whole"):
        path = Path(f"{name}.sqlite")
        assert cli(*SBN, "--seeds", "1,", "--dataset", name, "--store", path).code == 0
        shown.append("digits" in cli("show", "--store", path).out)
        with Store.open(path) as store:
            (run,) = store.runs()
            steps.append(int(store.history(run.id)["validation_loss"].steps[-1]))
    assert shown == [False, True]
    assert steps == [2 * (1280 // 64), 2 * (1536 // 64)]


def test_training_from_a_prepared_file_is_the_same(cli, rows) -> None:
    cli("data", "prepare", "digits", "--out", "levels.npz")
    assert cli(*LOGIC, "--seeds", 1, "--data", "levels.npz", "--store", "prepared.sqlite").code == 0
    assert cli(*LOGIC, "--seeds", 1, "--store", "images.sqlite").code == 0
    assert rows(Path("prepared.sqlite")) == rows(Path("images.sqlite"))
    other = cli(*LOGIC, "--seeds", 1, "--data", "levels.npz", "--thresholds", 2, "--store", "other.sqlite")
    assert other.code == 2
    assert "levels.npz holds the levels of digits at 3 thresholds, expected digits at 2" in other.err
    assert not Path("other.sqlite").exists()


@pytest.mark.parametrize("words", [("data", "--data", "away", "prepare"), ("data", "prepare", "--data", "away")])
def test_the_folder_counts_on_either_side_of_the_word(words, cli, monkeypatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    code, _, err = cli(*words, "mnist", "--out", "x.npz")
    assert (code, "mnist is not whole in away/mnist" in err) == (2, True)


def test_a_reader_that_leaves_early_is_no_error(store, start) -> None:
    process = start("show")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""


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


def test_nothing_else_is_written_over_a_store(store, cli) -> None:
    cli("copy", "other.sqlite")
    cli("copy", "small.sqlite.xz")
    before = {name: Path(name).read_bytes() for name in ("dst.sqlite", "other.sqlite", "small.sqlite.xz")}
    Path("link.html").symlink_to("other.sqlite")
    for name in (*before, "link.html"):
        for words in (("report",), ("export", "--format", "csv"), ("data", "prepare", "digits")):
            ended = cli(*words, "--out", name)
            assert ended.code == 2, words
            assert "store" in ended.err
            assert "give another path" in ended.err
    assert before == {name: Path(name).read_bytes() for name in before}


def test_show_says_what_was_looked_for(store, cli) -> None:
    assert cells(cli("show", "--where", "estimator=softmax-ste").out, "softmax_ste")[1] == "softmax_ste"
    ended = cli("show", "--where", "tau_f=0.3", "--where", "seed=1")
    assert ended.out == "no runs with validation_loss where tau_f=0.3 and seed=1\n"
    ended = cli("show", "--where", "seed=0", "--where", "seed=1")
    assert (ended.code, ended.err) == (2, "dst: no run has two values of seed, got seed=0 and seed=1\n")


def test_asked_to_end_a_copy_leaves_nothing_behind(store) -> None:
    """SIGTERM in the middle: as by Ctrl-C, what is half-written goes."""
    code = (
        "import os, signal\nfrom dst_lab.store import Store\nfrom dst_lab.cli.main import main\n"
        "before = Store.copy\n"
        "def copy(*args, **given):\n"
        "    import dst_lab.replace as replace\n"
        "    replace._flush = lambda *given: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return before(*args, **given)\n"
        "Store.copy = copy\n"
        "main(['copy', 'target.sqlite'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 128 + 15, ended.stderr
    assert not [path for path in Path().iterdir() if "target" in path.name]


def test_a_damaged_store_is_refused_before_training(store, cli) -> None:
    cli("copy", "harmed.sqlite")
    with closing(sqlite3.connect("harmed.sqlite")) as raw:
        ((run,),) = raw.execute("SELECT id FROM runs WHERE key = 3").fetchall()
        raw.execute("UPDATE histories SET body = zeroblob(9) WHERE run = 3")
        raw.commit()
    ended = cli(*SBN, "--seeds", 4, "--store", "harmed.sqlite")
    assert ended.code == 2
    assert f"the record of run {run} is damaged" in ended.err
    assert "Restore it from a copy" in ended.err
    assert "step" not in ended.err, "nothing was trained"
    assert cli("copy", "--store", "harmed.sqlite", "copy.sqlite").code == 2
    assert not Path("copy.sqlite").exists()


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
    assert (
        "1 runs of other.sqlite differ from what was there, which stays (--prefer theirs takes the others):"
        in ended.out
    )
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


def test_lists_name_what_their_runs_differ_in(cli) -> None:
    small = ("run", "stochastic-binary", "--hidden", "8", "--threads", 1, "--seeds", 1)
    for epochs in (1, 2):
        assert cli(*small, "--epochs", epochs).code == 0
    told = [line.partition("seed=0 ")[2].partition(" (")[0] for line in cli("rm", "--where", "seed=0").out.splitlines()]
    assert told == ["", "epochs=1", "epochs=2"]


def made(seed: int, status: str, value: float = 1.0) -> Record:
    config = {"task": "own", "estimator": {"name": "soft", "tau": 1.0}, "seed": seed, "lr": 0.1}
    history = {"validation_loss": Series([0, 1], [2.0, value])} if status != "failed" else {}
    return Record(config=config, status=status, history=history)


def test_a_merge_counts_only_what_it_would_take_with_the_other_preference(cli) -> None:
    """A failed and a stopped run say nothing against one that is done: preferring theirs would not take them."""
    with Store.open("a.sqlite", write=True) as store:
        store.put([made(0, "done"), made(1, "done"), made(2, "done"), made(3, "failed")])
    with Store.open("b.sqlite", write=True) as store:
        store.put([made(0, "done", 7.0), made(1, "failed"), made(2, "stopped", 7.0), made(3, "stopped", 7.0)])
    told = cli("merge", "--store", "a.sqlite", "b.sqlite").out
    assert "b.sqlite: 0 added, 3 already there, 1 replaced" in told
    assert "1 runs of b.sqlite differ from what was there" in told
    assert [line.split("(")[0].strip() for line in told.splitlines() if line.startswith("  ")] == [
        "own soft tau=1.0 seed=0"
    ]
    again = cli("merge", "--store", "a.sqlite", "b.sqlite", "--prefer", "theirs").out
    assert "0 added, 3 already there, 1 replaced" in again
    assert "differ" not in again
