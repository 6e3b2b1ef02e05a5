"""`dst show`, `export`, `copy`, `merge` and `data`, end to end."""

import csv
import subprocess
import sys
from pathlib import Path

import planted
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
