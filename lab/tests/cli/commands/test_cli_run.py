"""`dst run`: trains what is missing, says so, and shows its progress to a person or to a file."""

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

import planted
import pytest
import torch
from dst_lab.cli.options.axes import read_axis
from dst_lab.estimators import Choice
from dst_lab.store import Store
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

import decoupled_st

SBN = ("run", "stochastic-binary", "--epochs", 2, "--hidden", "16,16", "--threads", 1)


def test_again_it_trains_nothing(cli, rows) -> None:
    first = cli(*SBN, "--seeds", 3)
    assert first.code == 0
    assert first.err.splitlines()[-1] == "3 runs: 3 trained, 0 already there. Store: dst.sqlite"
    before = rows(Path("dst.sqlite"))
    again = cli(*SBN, "--seeds", 3)
    assert again.code == 0
    assert again.err.splitlines() == ["3 runs: 0 trained, 3 already there. Store: dst.sqlite"]
    assert again.out == first.out
    assert rows(Path("dst.sqlite")) == before
    assert [path.name for path in Path().iterdir()] == ["dst.sqlite"]


def test_more_seeds_train_only_the_new_ones(cli, rows) -> None:
    cli(*SBN, "--seeds", 2)
    two = rows(Path("dst.sqlite"))
    wider = cli(*SBN, "--seeds", 4)
    assert wider.err.splitlines()[-1] == "4 runs: 2 trained, 2 already there. Store: dst.sqlite"
    four = rows(Path("dst.sqlite"))
    assert {run: four[run] for run in two} == two
    assert sorted(row["config"]["seed"] for row in four.values()) == [0, 1, 2, 3]
    listed = cli(*SBN, "--seeds", "1,9,")
    assert listed.err.splitlines()[-1] == "2 runs: 1 trained, 1 already there. Store: dst.sqlite"
    cli(*SBN, "--seeds", 4, "--store", "whole.sqlite")
    assert rows(Path("whole.sqlite")) == four


def test_what_was_asked_is_what_is_recorded(cli, rows) -> None:
    words = ("--tau-f", "1:0.5:linear", "--tau-b", 2, "--lr", "1e-2", "--batch", 32, "--seeds", "7,")
    assert cli(*SBN, *words).code == 0
    (row,) = rows(Path("dst.sqlite")).values()
    assert row["config"] == {
        "task": "stochastic-binary", "estimator": {"name": "decoupled", "tau_f": "1.0:0.5:linear", "tau_b": 2.0},
        "seed": 7, "lr": 0.01, "dataset": "digits", "batch": 32, "hidden": [16, 16], "epochs": 2, "diagnose_every": 10,
    }  # fmt: skip
    assert row["status"] == "done"


def test_all_estimators_with_their_own_temperatures(cli, rows) -> None:
    assert cli(*SBN, "--estimator", "all", "--seeds", 1).code == 0
    found = [row["config"]["estimator"] for row in rows(Path("dst.sqlite")).values()]
    assert found == [
        {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7},
        {"name": "softmax_ste", "tau": 0.2},
        {"name": "gumbel_ste", "tau": 0.5},
        {"name": "identity_ste"},
    ]


def test_one_line_an_evaluation_where_nobody_watches(cli) -> None:
    path, *lines = cli(*SBN, "--seeds", 1).err.splitlines()
    assert path == "path: plain"
    assert len(lines) == 3
    for line, step in zip(lines, (20, 40), strict=False):
        pattern = rf"stochastic-binary decoupled, 1 run: step {step}/40, validation loss: best [\d.]+, median [\d.]+"
        assert re.fullmatch(pattern, line)


def test_every_step_an_evaluation_is_every_step_a_line(cli) -> None:
    logic = ("run", "logic-gates", "--width", 160, "--steps", 3, "--evaluate-every", 1, "--seeds", 2, "--fleet", 1)
    path, *lines = cli(*logic).err.splitlines()
    assert path == "path: packed bits"
    assert [line.split(",")[1] for line in lines[:-1]] == [f" 1 run: step {step}/3" for step in (1, 2, 3)] * 2


def test_the_table_is_the_store_summed_up(cli) -> None:
    table = cli(*SBN, "--seeds", 3).out
    with Store.open("dst.sqlite") as store:
        best = [float(store.history(run.id)["validation_loss"].values.min()) for run in store.runs()]
    mean = sum(best) / 3
    (head,) = [line for line in table.splitlines() if "estimator" in line]
    (row,) = [line for line in table.splitlines() if "decoupled" in line]
    cells = dict(zip(map(str.strip, head.split("┃")), map(str.strip, row.split("│")), strict=True))
    assert cells["estimator"] == "decoupled"
    assert cells["n"] == "3"
    assert cells["mean"] == f"{mean:.4g}"
    assert cells["best"] == f"{min(best):.4g}"


def test_a_run_that_diverges_is_counted_and_stays(cli, rows) -> None:
    ended = cli(*SBN, "--seeds", 1, "--lr", "1e38")
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "1 run: 1 trained, 0 already there, 1 diverged. Store: dst.sqlite"
    assert next(iter(rows(Path("dst.sqlite")).values()))["status"] == "diverged"
    assert cli(*SBN, "--seeds", 1, "--lr", "1e38").err.startswith("1 run: 0 trained, 1 already there")


def test_a_sweep_without_time_trains_nothing_and_says_so(cli, rows) -> None:
    words = ("sweep", "stochastic-binary", "--seeds", 1, "--threads", 1, "--grid", "tau_f=0,1", "epochs=1")
    none = cli(*words, "--budget", 0)
    assert none.code == 3
    assert none.err.splitlines() == [
        "2 runs: 0 trained, 0 already there, 2 left for lack of time. Store: dst.sqlite",
        "dst: 2 runs of this round are left; a --budget of 0 trains none, give it more",
    ]
    assert none.out == "", "no table of runs that are not there"
    assert cli(*words).code == 0
    assert cli("run", "stochastic-binary", "--epochs", 1, "--tau-f", 1, "--seeds", 1).err.startswith("1 run: 0 trained")
    assert sorted(row["config"]["estimator"]["tau_f"] for row in rows(Path("dst.sqlite")).values()) == [0.0, 1.0]


def test_a_constant_of_a_rule_is_one_run_however_it_is_typed(cli, rows) -> None:
    words = ("--seeds", 1, "--threads", 1)
    small = ("run", "stochastic-binary", "--epochs", 1, "--hidden", "8", *words)
    for text in ("8", "8.0", "08.", "8e0"):
        assert cli(*small, "--tau-f", 0.5, "--tau-b", f"self:high={text}:share=0.5").code == 0
        assert cli(*small, "--temperatures", f"self:high={text}").code == 0
    taus = {run["config"]["estimator"]["tau_b"] for run in rows(Path("dst.sqlite")).values()}
    assert taus == {"self:high=8:share=0.5", "self:high=8"}
    grid = ("tau_b=self:high=8,self:high=8.0,self:high=2.5", "epochs=1")
    assert cli("sweep", "stochastic-binary", *words, "--grid", *grid, "--store", "grid.sqlite").code == 0
    taus = {run["config"]["estimator"]["tau_b"] for run in rows(Path("grid.sqlite")).values()}
    assert taus == {"self:high=8", "self:high=2.5"}


def test_words_make_an_axis_too(cli, rows) -> None:
    grid = ("wiring=random,unique", "dataset=digits", "width=160", "steps=2")
    ended = cli("sweep", "logic-gates", "--seeds", 1, "--threads", 1, "--grid", *grid)
    assert ended.code == 0
    assert "best of logic-gates decoupled: wiring=" in ended.out
    configs = [row["config"] for row in rows(Path("dst.sqlite")).values()]
    assert [(c["wiring"], c["width"], c["steps"]) for c in configs] == [("random", 160, 2), ("unique", 160, 2)]


def test_schedules_and_rules_are_values_of_a_temperature(cli, rows) -> None:
    grid = ("tau_f=0:1:0.5,2:0.1:linear,1.0", "tau_b=1,self", "epochs=1")
    ended = cli("sweep", "stochastic-binary", "--seeds", 1, "--threads", 1, "--grid", *grid)
    assert ended.code == 0, ended.err
    found = [row["config"]["estimator"] for row in rows(Path("dst.sqlite")).values()]
    expected = [(tau_f, tau_b) for tau_f in (0.0, 0.5, 1.0, "2.0:0.1:linear") for tau_b in (1.0, "self")]
    assert {(one["tau_f"], one["tau_b"]) for one in found} == set(expected)
    assert len(found) == 8, "1.0 is there once"
    ended = cli("sweep", "polynomial", "--estimator", "gapped-ste", "--dry-run", "--grid", "gap=1,p", "steps=2")
    assert "gapped_ste" in ended.out
    assert "10 runs to train next" in ended.out


@pytest.mark.parametrize(("words", "expected"), [(("--threads", 1), 1), ((), 3), (("--engine", "ray"), 1)])
def test_a_dry_run_tries_with_the_threads_of_the_run(words, expected, cli, monkeypatch) -> None:
    from dst_lab.cli import estimate
    from dst_lab.fleet.loop import threads

    used = []
    monkeypatch.setattr(estimate, "estimate_seconds", lambda *_: used.append(torch.get_num_threads()) or 1.0)
    with threads(3):
        ended = cli(
            "sweep", "stochastic-binary", "--seeds", 2, "--grid", "epochs=1", "--dry-run", "--device", "cpu", *words
        )
        assert torch.get_num_threads() == 3
    assert ended.code == 0
    assert used == [expected]
    assert ended.out.endswith("2 runs to train next, about 0 min 01 s on cpu\n")


def test_a_sweep_with_nothing_to_train_says_why(cli) -> None:
    for dry in (("--dry-run",), ()):
        ended = cli("sweep", "confirm", "--task", "logic-gates", *dry)
        assert ended.code == 0
        assert "logic-sequential is not done: sweep it first" in ended.out.splitlines()
        assert ended.out.splitlines()[-1] == "nothing to train before that"
        assert not Path("dst.sqlite").exists()
    grid = ("sweep", "stochastic-binary", "--seeds", 1, "--threads", 1, "--grid", "epochs=1")
    assert "nothing to train" not in cli(*grid).out
    for dry in (("--dry-run",), ()):
        *_, last = cli(*grid, *dry).out.splitlines()
        assert last == "nothing to train: the store has every run that is wanted so far"


def test_a_following_recipe_without_runs_of_a_task(cli) -> None:
    planted.plant(Path("dst.sqlite"))
    for dry in (("--dry-run",), ()):
        ended = cli("sweep", "catae-rate", "--task", "stochastic-binary", *dry)
        assert ended.err == (
            "dst: the recipe catae-rate has no runs of stochastic-binary: its runs are of categorical-autoencoder\n"
        )
        assert ended.code == 2


def test_help_names_every_option(cli) -> None:
    shown = cli("run", "stochastic-binary", "--help").out
    for option in ("--checkpoint-seconds", "--threads", "--fleet", "--tau-f", "--seeds", "--store", "--hidden"):
        assert option in shown


def test_the_version_is_that_of_the_library(cli) -> None:
    assert cli("--version") == (0, f"dst {decoupled_st.__version__}\n", "")


def test_training_goes_on_where_nobody_listens_any_more(start, rows, cli) -> None:
    """As in `dst run .. 2>&1 | head`."""
    process = start(*SBN, "--seeds", 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert cli(*SBN, "--seeds", 2, "--store", "whole.sqlite").code == 0
    assert rows(Path("dst.sqlite")) == rows(Path("whole.sqlite"))


class Terminal:
    """A pseudo-terminal, and all that was written to it."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self.master, 4096)
            except OSError:
                return
            if not part:
                return
            self.parts.append(part)

    def close(self) -> str:
        """Everything it showed, control codes removed."""
        os.close(self.slave)
        self._reader.join(timeout=30)
        os.close(self.master)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(self.parts).decode())


@pytest.mark.slow
def test_a_live_bar_on_a_terminal_and_the_table_where_it_was_sent(dst, surroundings, monkeypatch) -> None:
    """stderr is a terminal, stdout a pipe: the bar goes to the one, the table whole to the other."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    ended = dst(*SBN, "--estimator", "all", "--epochs", 15, "--seeds", 2, stderr=terminal.slave)
    shown = terminal.close()
    assert ended.code == 0
    assert "━" in shown
    assert re.search(r"stochastic-binary decoupled, 2 runs, validation loss: best .*\r\n.*━.* \d+/300 .*steps/s", shown)
    assert shown.count("8 runs: 8 trained, 0 already there. Store: dst.sqlite") == 1
    # A fleet that has ended is a line above the bar, not one more bar.
    for name in ("decoupled", "softmax_ste", "gumbel_ste"):
        assert f"stochastic-binary {name}, 2 runs: step 300/300, validation loss: best" in shown
    assert "validation_loss (best of each run)" in ended.out
    assert sum(name in ended.out for name in ("decoupled", "softmax_ste", "gumbel_ste", "identity_ste")) == 4
    assert "validation_loss (best of each run)" not in shown
    assert "steps/s" not in ended.out


def test_a_store_that_is_removed_between_two_chunks_is_a_sentence(cli, monkeypatch) -> None:
    put = Store.put

    def recording(store, records) -> None:
        put(store, records)
        Path("dst.sqlite").unlink()

    monkeypatch.setattr(Store, "put", recording)
    ended = cli(*SBN, "--epochs", 1, "--hidden", "16,16", "--threads", 1, "--seeds", 4, "--fleet", 2)
    assert ended.code == 2
    assert "dst.sqlite was removed or moved while runs were trained" in ended.err.splitlines()[-1]
    assert not Path("dst.sqlite").exists()


def test_shapes_are_an_axis_of_a_grid(cli) -> None:
    grid = ("sweep", "stochastic-binary", "--grid", "hidden=16x8,20", "epochs=1", "--seeds", 1, "--threads", 1)
    assert cli(*grid).code == 0
    with Store.open("dst.sqlite") as store:
        assert sorted(run.config["hidden"] for run in store.runs()) == [[16, 8], [20]]
    refused = cli("sweep", "stochastic-binary", "--grid", "hidden=16x,20")
    assert refused.err.startswith("dst: hidden takes values such as 64x64,200 with commas between, got")
    refused = cli("sweep", "stochastic-binary", "--adaptive", "tau_f=0.1:1", "hidden=16,8x8")
    assert "an adaptive search varies numbers and words, got hidden: vary it by --grid" in refused.err


def test_a_dry_run_says_what_a_run_would_train_and_trains_nothing(cli) -> None:
    dry = cli(*SBN, "--seeds", 3, "--dry-run")
    assert dry.code == 0
    assert dry.out.splitlines()[-1].startswith("3 runs to train next, about 0 min 0")
    assert not Path("dst.sqlite").exists()
    assert cli(*SBN, "--seeds", 2).code == 0
    assert cli(*SBN, "--seeds", 3, "--dry-run").out.splitlines()[-1].startswith("1 runs to train next")
    assert cli(*SBN, "--seeds", 2, "--dry-run").out == "nothing to train: the store has all 2 runs\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("tau_f=0:1:0.25", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("tau_b=0.5,2:0.1:linear,self", (0.5, "2.0:0.1:linear", "self")),
        ("lr=0.001,0.003,0.001", (0.001, 0.003)),
        ("optimiser=adam,radam", ("adam", "radam")),
        ("hidden=64x32,200", ((64, 32), (200,))),
    ],
)
def test_an_axis_is_read_with_both_its_ends(text: str, values: tuple) -> None:
    base = StochasticBinaryConfig(estimator=Choice.default("decoupled"))
    assert read_axis(text, base) == (text.partition("=")[0], values)
