"""Conditions on runs: the same for every command that takes `--where`."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from dst_lab.estimators import Choice
from dst_lab.plans import FRESH
from dst_lab.records import Rows
from dst_lab.records.fields import parse
from dst_lab.records.groups import groups
from dst_lab.report.tables import settings_table
from dst_lab.store import Record, Store, run_id
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from invented import put, record
from studies import PAPER


def network(loss: float = 1.0, **fields: Any) -> Record:
    """A run of a binary network, whose config does not mention what is at its default."""
    config = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.1, tau_b=0.7), **fields)
    return record(loss, **config.to_dict())


@pytest.fixture
def store(cli) -> Path:
    """Two search seeds and a fresh one; `cli` has made this its folder."""
    return put("dst.sqlite", *(network(seed=seed) for seed in (0, 1, FRESH)))


@pytest.fixture
def optimisers(cli) -> Path:
    """One setting by two optimisers; the dictionary of the first does not mention adam, the default."""
    return put("dst.sqlite", network(1.0), network(3.0, optimiser="radam"))


def seeds_in(path: Path) -> list[int]:
    with Store.open(path) as store:
        return [run.seed for run in store.runs()]


def shown(cli, *words: str) -> list[dict[str, Any]]:
    return json.loads(cli("show", "--json", *words).out)


@pytest.mark.parametrize("command", [("rm", "--yes"), ("show",)])
@pytest.mark.parametrize("condition", ["tuaf!=0.1", "tuaf=0.1", "tuaf>0", "name!=decoupled"])
def test_a_field_that_no_run_has_is_refused(command, condition, store, cli) -> None:
    ended = cli(*command, "--where", condition)
    assert ended.code == 2
    name = condition.partition("!")[0] if "!" in condition else "tuaf"
    assert f"no run has the field '{name}'; there are id, status, seeds, batch, " in ended.err
    assert seeds_in(store) == [0, 1, FRESH], "not even by a condition that holds for what is missing"


def test_search_seeds_and_fresh_ones_are_told_apart_by_every_command(store, cli) -> None:
    assert cli("rm", "--yes", "--where", "seeds!=fresh").out == "2 runs removed from dst.sqlite\n"
    assert seeds_in(store) == [FRESH]


def test_runs_that_leave_a_field_at_its_default_are_not_averaged_with_others(optimisers, cli) -> None:
    rows = shown(cli)
    assert [(row["optimiser"], row["n"], row["mean"]) for row in rows] == [("adam", 1, 1.0), ("radam", 1, 3.0)]


def test_a_condition_on_a_default_finds_the_runs_that_leave_it_out(optimisers, cli) -> None:
    for where in ("optimiser=adam", "optimiser!=radam", "warmup=0"):
        found = shown(cli, "--where", where, "optimiser=adam")
        assert [(row["n"], row["mean"]) for row in found] == [(1, 1.0)], where


def test_an_export_and_a_page_name_the_default_too(optimisers, cli) -> None:
    assert cli("export", "--out", "runs.csv").code == 0
    with open("runs.csv", newline="") as file:
        found = {row["value"]: (row["optimiser"], "warmup" in row) for row in csv.DictReader(file)}
    assert found == {"1.0": ("adam", False), "3.0": ("radam", False)}, "a column where any run differs"
    with Store.open(optimisers) as opened:
        (group,) = groups(Rows.of(opened, PAPER.recipes, "quick"))
        assert group.varied == ["optimiser"]
        assert [line.fields for line in settings_table(group)] == [("adam",), ("radam",)]


def test_parameters_with_dots_in_their_names_are_told_apart(cli) -> None:
    for depth in (1, 2):
        put("dst.sqlite", record(1.0 * depth, parameters={"model.depth": depth, "model": {"width": 8}}))
    assert [(row["parameters.model.depth"], row["mean"]) for row in shown(cli)] == [(1, 1.0), (2, 2.0)]
    rows = shown(cli, "--where", "parameters.model.depth=2", "parameters.model.width=8")
    assert [row["mean"] for row in rows] == [2.0]


def test_an_id_that_looks_like_a_number_is_one_run(cli) -> None:
    """About one id in 1300 reads as a number that is infinite, such as 02e8164723156083."""

    def config(seed: int) -> dict:
        return {"task": "somebodys", "estimator": {"name": "decoupled"}, "seed": seed, "commit": "7e999"}

    infinite = [seed for seed in range(10_000) if re.fullmatch(r"\d+e\d+", run_id(config(seed)))][:3]
    put("dst.sqlite", *(Record(config=config(seed), status="done") for seed in infinite))
    assert cli("rm", "--yes", "--where", f"id={run_id(config(infinite[1]))}").out == "1 runs removed from dst.sqlite\n"
    assert seeds_in(Path("dst.sqlite")) == [infinite[0], infinite[2]]
    start = run_id(config(infinite[0]))[:6]
    assert cli("rm", "--where", f"id!={start}").out.count(run_id(config(infinite[2]))) == 1, "known by its beginning"
    assert cli("rm", "--where", f"id={start}").out.startswith("1 runs of")
    assert cli("rm", "--where", "commit=8e999").out.startswith("0 runs of")
    assert cli("rm", "--where", "commit>1").out.startswith("0 runs of"), "only numbers are larger"


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("2:0.1:linear", "2.0:0.1:linear"),
        ("2:.1:cosine:.5", "2.0:0.1:cosine:0.5"),
        ("self:share=.25:high=8.0", "self:high=8:share=0.25"),
    ],
)
def test_a_schedule_or_a_rule_is_known_as_it_is_typed(typed: str, recorded: str) -> None:
    (equal,), (other,) = parse([f"tau_b={typed}"]), parse([f"tau_b!={typed}"])
    assert equal.holds(recorded)
    assert not other.holds(recorded), "what was to be spared"
    assert not equal.holds("2.0:0.2:linear")
    assert not equal.holds("self")


@pytest.mark.parametrize("typed", ["16,8", "[16, 8]", "16.0,8", "(16,8)"])
def test_a_list_is_known_as_it_is_typed(cli, typed: str) -> None:
    put("dst.sqlite", network(hidden=(16, 8)), network(hidden=(8,)))
    (row,) = shown(cli, "--group", "hidden", "--where", f"hidden={typed}")
    assert row["hidden"] == "[16, 8]"
    assert cli("rm", "--where", f"hidden!={typed}", "--yes").out.startswith("1 runs removed")
    assert cli("rm", "--where", "hidden=8").out.startswith("0 runs of")


@pytest.mark.parametrize("condition", ["lr!=0,003", "status!=Done", "optimiser!=Adam", "task!=stochastic_binary"])
def test_an_inequality_that_spares_no_run_removes_none(optimisers, cli, condition: str) -> None:
    ended = cli("rm", "--yes", "--where", condition)
    assert (ended.code, f"every run fits {condition}, since none has this value" in ended.err) == (2, True)
    assert len(json.loads(cli("show", "--json", "--group", "id").out)) == 2


def own(seed: int, **fields: Any) -> Record:
    return record(1.0, {"name": "gapped_ste", "tau": 1.0, "gap": 1.0}, seed=seed, **fields)


COUNTED = {
    "drop=False": 1,
    "drop!=false": 2,
    "drop=0.1": 1,
    "drop!=0.10": 2,
    "rate=2:0.1:linear": 1,
    "rate!=0.10": 2,
    "rate=self": 0,
    "act=b": 0,
    "rate=1:0.1:linear": 0,
}


def test_truths_numbers_and_words_are_compared_as_what_they_are(cli) -> None:
    first, second = own(0, drop=False, rate=0.1), own(1, drop=0.1, rate="2.0:0.1:linear")
    put("dst.sqlite", first, second, own(2, drop=0.2, act="a"))
    for condition, runs in COUNTED.items():
        assert cli("rm", "--where", condition).out.startswith(f"{runs} runs of"), condition
    for condition in ("rate!=slef", "act!=tanh"):
        assert cli("rm", "--where", condition, "--yes").code == 2, condition
    assert seeds_in(Path("dst.sqlite")) == [0, 1, 2]
