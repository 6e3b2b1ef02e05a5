"""dst run, sweep and sweep --adaptive: what is missing is trained, and what is done is said."""

import re
import sys
from pathlib import Path

import pytest
from dst_lab.cli.options import read_axis
from dst_lab.estimators import Choice
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

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
    config = row["config"]
    assert config.pop("estimator") == {"name": "decoupled", "tau_f": "1.0:0.5:linear", "tau_b": 2.0}
    sizes = {"batch": 32, "hidden": [16, 16], "epochs": 2, "diagnose_every": 10}
    assert config == {"task": "stochastic-binary", "seed": 7, "lr": 0.01, "dataset": "digits", **sizes}
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


def test_a_dry_run_says_what_a_run_would_train_and_trains_nothing(cli) -> None:
    dry = cli(*SBN, "--seeds", 3, "--dry-run")
    assert dry.code == 0
    assert dry.out == "stochastic-binary decoupled: 3 runs\n3 runs to train next\n"
    assert not Path("dst.sqlite").exists()
    assert cli(*SBN, "--seeds", 2).code == 0
    assert cli(*SBN, "--seeds", 3, "--dry-run").out.splitlines()[-1].startswith("1 runs to train next")
    assert cli(*SBN, "--seeds", 2, "--dry-run").out == "nothing to train: the store has all 2 runs\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("tau_f=0:1:0.25,0.5", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("tau_b=0.5,2:0.1:linear,self", (0.5, "2.0:0.1:linear", "self")),
        ("lr=0.001,0.003,0.001", (0.001, 0.003)),
        ("optimiser=adam,radam", ("adam", "radam")),
        ("hidden=64x32,200", ((64, 32), (200,))),
    ],
)
def test_an_axis_is_read_with_both_its_ends(text: str, values: tuple) -> None:
    base = StochasticBinaryConfig(estimator=Choice.default("decoupled"))
    assert read_axis(text, base) == (text.partition("=")[0], values)


SEARCH = ("sweep", "bias-variance", "--adaptive", "tau_f=0.2:2", "tau_b=0.2:2", "--seeds", 1, "--threads", 1)


def test_a_search_goes_on_where_it_was_and_then_trains_nothing(cli, rows) -> None:
    first = cli(*SEARCH, "--settings", 8)
    assert first.code == 0
    assert "8 runs: 8 trained, 0 already there. Store: dst.sqlite" in first.err
    assert first.out.splitlines()[-1].startswith("chosen for bias-variance decoupled: tau_f=")
    assert first.out.splitlines()[-1].endswith("of 8 settings")
    eight = rows(Path("dst.sqlite"))
    more = cli(*SEARCH, "--settings", 10)
    assert "10 runs: 2 trained, 8 already there. Store: dst.sqlite" in more.err
    ten = rows(Path("dst.sqlite"))
    assert len(ten) == 10
    assert {run: ten[run] for run in eight} == eight
    assert all(0.2 <= row["config"]["estimator"]["tau_f"] <= 2 for row in ten.values())
    again = cli(*SEARCH, "--settings", 10)
    assert (again.code, again.err) == (0, "")
    assert rows(Path("dst.sqlite")) == ten


def test_without_optuna_a_sentence_says_what_to_install(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    ended = cli(*SEARCH)
    assert ended.code == 2
    assert ended.err == 'dst: adaptive search needs Optuna: pip install "dst-lab[adaptive]"\n'
    assert not Path("dst.sqlite").exists()


def test_a_search_among_values_beside_a_range(cli, rows) -> None:
    words = (*SEARCH[:4], "optimiser=adam,radam", "--seeds", 1, "--threads", 1)
    ended = cli(*words, "--settings", 8)
    assert ended.code == 0, ended.err
    assert re.search(r"chosen for bias-variance decoupled: tau_f=[\d.]+, optimiser=r?adam, ", ended.out)
    optimisers = [row["config"].get("optimiser", "adam") for row in rows(Path("dst.sqlite")).values()]
    assert set(optimisers) == {"adam", "radam"}
