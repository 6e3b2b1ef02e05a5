"""`dst sweep TASK --adaptive`: a search from the command line."""

import re
import sys
from pathlib import Path

import pytest

SEARCH = ("sweep", "bias-variance", "--adaptive", "tau_f=0.2:2", "tau_b=0.2:2", "--seeds", 1, "--threads", 1)


def test_a_search_goes_on_where_it_was_and_then_trains_nothing(cli, rows) -> None:
    first = cli(*SEARCH, "--settings", 8)
    assert first.code == 0
    assert "8 runs: 8 trained, 0 already there. Store: dst.sqlite" in first.err
    assert first.out.splitlines()[-1].startswith("chosen for bias-variance decoupled: tau_f=")
    assert first.out.splitlines()[-1].endswith("of 8 settings by tpe")
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


def test_halving_says_where_it_stopped_nothing(cli) -> None:
    """With one evaluation, the last, there is nothing to stop by."""
    words = ("sweep", "stochastic-binary", "--adaptive", "tau_f=0.2:2", "epochs=1", "--threads", 1, "--seeds", 1)
    ended = cli(*words, "--settings", 2, "--halving")
    assert ended.code == 0
    assert ended.out.splitlines()[-1].endswith("of 2 settings by tpe with halving, none stopped early")


def test_halving_stops_the_worse_and_chooses_among_the_rest(cli, rows) -> None:
    ended = cli(*SEARCH, "--settings", 8, "--sampler", "cma-es", "--halving")
    assert ended.code == 0
    recorded = rows(Path("dst.sqlite")).values()
    assert sorted(row["status"] for row in recorded) == ["done"] * 2 + ["stopped"] * 6
    (head,) = [line for line in ended.out.splitlines() if "estimator" in line]
    assert "stopped" in head
    note = ended.out.splitlines()[-1]
    assert note.endswith("of 8 settings by cma-es with halving, 6 stopped early")
    chosen = [float(part.partition("=")[2]) for part in note.split(": ")[1].split(", ")[:2]]
    survivors = [row["config"]["estimator"] for row in recorded if row["status"] == "done"]
    assert chosen in [[row["tau_f"], row["tau_b"]] for row in survivors]
    again = cli(*SEARCH, "--settings", 8, "--sampler", "cma-es", "--halving")
    assert (again.code, again.err) == (0, "")
    # Without halving the same settings are wanted whole.
    whole = cli(*SEARCH, "--settings", 8, "--sampler", "cma-es")
    assert "8 runs: 6 trained, 2 already there. Store: dst.sqlite" in whole.err
    assert {row["status"] for row in rows(Path("dst.sqlite")).values()} == {"done"}


def test_one_value_is_for_all_runs(cli, rows) -> None:
    words = ("sweep", "stochastic-binary", "--adaptive", "tau_f=0.2:2", "epochs=1", "tau_b=0.7", "--settings", 2)
    assert cli(*words, "--seeds", 1, "--threads", 1).code == 0
    configs = [row["config"] for row in rows(Path("dst.sqlite")).values()]
    assert [config["epochs"] for config in configs] == [1, 1]
    assert [config["estimator"]["tau_b"] for config in configs] == [0.7, 0.7]
    assert len({config["estimator"]["tau_f"] for config in configs}) == 2


def test_without_optuna_a_sentence_says_what_to_install(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    ended = cli(*SEARCH)
    assert ended.code == 2
    assert ended.err == 'dst: adaptive search needs Optuna: pip install "dst-lab[adaptive]"\n'
    assert not Path("dst.sqlite").exists()


def test_a_search_among_values_beside_a_range(cli, rows) -> None:
    words = (
        "sweep",
        "bias-variance",
        "--adaptive",
        "tau_f=0.2:2",
        "optimiser=adam,radam",
        "--seeds",
        1,
        "--threads",
        1,
    )
    ended = cli(*words, "--settings", 8)
    assert ended.code == 0, ended.err
    assert re.search(r"chosen for bias-variance decoupled: tau_f=[\d.]+, optimiser=r?adam, ", ended.out)
    optimisers = [row["config"].get("optimiser", "adam") for row in rows(Path("dst.sqlite")).values()]
    assert set(optimisers) == {"adam", "radam"}
    refused = cli(*words, "--sampler", "cma-es")
    assert refused.code == 2
    assert "cma-es searches ranges alone, and optimiser takes one of some values: take tpe" in refused.err
