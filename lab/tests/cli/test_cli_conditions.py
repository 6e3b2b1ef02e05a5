"""Conditions on runs: the same for every command that takes `--where`."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from dst_lab.estimators import Choice
from dst_lab.plans import FRESH
from dst_lab.records import Rows
from dst_lab.records.conditions import parse
from dst_lab.records.groups import groups
from dst_lab.report.tables import settings_table
from dst_lab.store import Record, Series, Store, StoreError, run_id
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from studies import PAPER


@pytest.fixture
def store(cli) -> Path:
    """Two search seeds and a fresh one; `cli` has made this its folder."""
    with Store.open("dst.sqlite", write=True) as store:
        store.put([_record(seed) for seed in (0, 1, FRESH)])
    return Path("dst.sqlite")


def _record(seed: int) -> Record:
    config = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.1, tau_b=0.7), seed=seed)
    history = {"validation_loss": Series(np.array([1, 2]), np.array([2.0, 1.0 + seed]))}
    return Record(config=config.to_dict(), status="done", history=history)


def seeds_in(path: Path) -> list[int]:
    with Store.open(path) as store:
        return [run.seed for run in store.runs()]


@pytest.mark.parametrize("command", [("rm", "--yes"), ("show",)])
@pytest.mark.parametrize("condition", ["tuaf!=0.1", "tuaf=0.1", "tuaf>0", "name!=decoupled"])
def test_a_field_that_no_run_has_is_refused(command, condition, store, cli) -> None:
    told = cli(*command, "--where", condition)
    assert told.code == 2
    name = condition.partition("!")[0] if "!" in condition else "tuaf"
    assert f"no run has the field '{name}'; there are id, status, seeds, batch, " in told.err
    assert seeds_in(store) == [0, 1, FRESH], "not even by a condition that holds for what is missing"


@pytest.mark.parametrize(
    ("first", "second"), [("tau_f=0.1", "tau_f=0.10"), ("tau_f=0.1", "tau_f==1e-1"), ("clip=None", "clip=none")]
)
def test_one_value_in_two_spellings_is_no_contradiction(first, second) -> None:
    assert [condition.field for condition in parse([first, second])] == [first.partition("=")[0]] * 2


def test_two_values_are_one_too_many() -> None:
    for texts in (("tau_f=0.1", "tau_f=0.2"), ("dataset=digits", "dataset=Digits"), ("tau_f=1", "tau_f=self")):
        with pytest.raises(StoreError, match="no run has two values of"):
            parse(texts)


def test_search_seeds_and_fresh_ones_are_told_apart_by_every_command(store, cli) -> None:
    assert cli("rm", "--yes", "--where", "seeds!=fresh").out == "2 runs removed from dst.sqlite\n"
    assert seeds_in(store) == [FRESH]


def _variant(loss: float, **fields) -> Record:
    config = StochasticBinaryConfig(estimator=Choice.make("decoupled", tau_f=0.1, tau_b=0.7), **fields)
    return Record(
        config=config.to_dict(), status="done", history={"validation_loss": Series(np.array([1]), np.array([loss]))}
    )


@pytest.fixture
def optimisers(cli) -> Path:
    """One setting by two optimisers; the dictionary of the first does not mention adam, the default."""
    with Store.open("dst.sqlite", write=True) as store:
        store.put([_variant(1.0), _variant(3.0, optimiser="radam")])
    return Path("dst.sqlite")


def test_runs_that_leave_a_field_at_its_default_are_not_averaged_with_others(optimisers, cli) -> None:
    rows = json.loads(cli("show", "--json").out)
    assert [(row["optimiser"], row["n"], row["mean"]) for row in rows] == [("adam", 1, 1.0), ("radam", 1, 3.0)]


def test_a_condition_on_a_default_finds_the_runs_that_leave_it_out(optimisers, cli) -> None:
    for where in ("optimiser=adam", "optimiser!=radam", "warmup=0"):
        rows = json.loads(cli("show", "--json", "--where", where, "optimiser=adam").out)
        assert [(row["n"], row["mean"]) for row in rows] == [(1, 1.0)], where


def test_an_export_and_a_page_name_the_default_too(optimisers, cli) -> None:
    assert cli("export", "--format", "csv", "--out", "runs.csv").code == 0
    with open("runs.csv", newline="") as file:
        found = {row["value"]: (row["optimiser"], "warmup" in row) for row in csv.DictReader(file)}
    assert found == {"1.0": ("adam", False), "3.0": ("radam", False)}, "a column where any run differs"
    with Store.open(optimisers) as opened:
        (group,) = groups(Rows.of(opened, PAPER.recipes, "quick"))
        assert group.varied == ["optimiser"]
        assert [row["fields"] for row in settings_table(group)] == [["adam"], ["radam"]]


def test_parameters_with_dots_in_their_names_are_told_apart(cli) -> None:
    with Store.open("dst.sqlite", write=True) as store:
        for depth in (1, 2):
            config = {"task": "own", "estimator": {"name": "decoupled", "tau_f": 1.0}, "seed": 0}
            config["parameters"] = {"model.depth": depth, "model": {"width": 8}}
            history = {"validation_loss": Series(np.array([1]), np.array([1.0 * depth]))}
            store.put([Record(config=config, status="done", history=history)])
    rows = json.loads(cli("show", "--json").out)
    assert [(row["parameters.model.depth"], row["mean"]) for row in rows] == [(1, 1.0), (2, 2.0)]
    rows = json.loads(cli("show", "--json", "--where", "parameters.model.depth=2", "parameters.model.width=8").out)
    assert [row["mean"] for row in rows] == [2.0]


def test_an_id_that_looks_like_a_number_is_one_run(cli) -> None:
    """About one id in 1300 reads as a number that is infinite, such as 02e8164723156083."""

    def config(seed: int) -> dict:
        return {"task": "somebodys", "estimator": {"name": "decoupled"}, "seed": seed, "commit": "7e999"}

    infinite = [seed for seed in range(10_000) if re.fullmatch(r"\d+e\d+", run_id(config(seed)))][:3]
    with Store.open("dst.sqlite", write=True) as store:
        store.put([Record(config=config(seed), status="done") for seed in infinite])
    told = cli("rm", "--yes", "--where", f"id={run_id(config(infinite[1]))}")
    assert told.out == "1 runs removed from dst.sqlite\n"
    assert seeds_in(Path("dst.sqlite")) == [infinite[0], infinite[2]]
    start = run_id(config(infinite[0]))[:6]
    assert cli("rm", "--where", f"id!={start}").out.count(run_id(config(infinite[2]))) == 1, "known by its beginning"
    assert cli("rm", "--where", f"id={start}").out.startswith("1 runs of")
    assert cli("rm", "--where", "commit=8e999").out.startswith("0 runs of")
    assert "commit is a number in no run" in cli("rm", "--where", "commit>1").err, "only numbers are larger"


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


@pytest.mark.parametrize("typed", ["16,8", "[16,8]", "[16, 8]", "16, 8", "16.0,8", "(16,8)"])
def test_a_list_is_known_as_it_is_typed(cli, typed: str) -> None:
    for hidden in ("16,8", "8"):
        assert (
            cli("run", "stochastic-binary", "--hidden", hidden, "--epochs", 1, "--seeds", 1, "--threads", 1).code == 0
        )
    (row,) = json.loads(cli("show", "--json", "--group", "hidden", "--where", f"hidden={typed}").out)
    assert row["hidden"] == "[16, 8]"
    assert cli("rm", "--where", f"hidden!={typed}", "--yes").out.startswith("1 runs removed")
    (row,) = json.loads(cli("show", "--json", "--group", "hidden").out)
    assert row["hidden"] == "[16, 8]"
    assert cli("rm", "--where", "hidden=8").out.startswith("0 runs of")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("lr!=0,003", "lr is a number in every run, got 'lr!=0,003'"),
        ("seed=one", "seed is a number in every run, got 'seed=one'"),
        ("status!=Done", "status is one of diverged, done, failed, stopped, got 'status!=Done'. Did you mean 'done'?"),
        ("seeds>=1000", "seeds is a number in no run, got 'seeds>=1000'"),
        ("optimiser>3", "optimiser is a number in no run, got 'optimiser>3'"),
        ("dataset!=digit", "dataset is one of cifar10, "),
        ("optimiser!=Adam", "optimiser is one of adam, adamw, radam, got 'optimiser!=Adam'"),
        (
            "hidden!=none of these",
            "every run would fit 'hidden!=none of these', since none has this value: there are [",
        ),
        ("id!=12e5", "every run would fit 'id!=12e5', since none has this value: there are "),
        ("seeds=new", "seeds is one of fresh, search, got 'seeds=new'"),
        ("estimator!=softmax ste", "estimator is one of "),
        ("task!=stochastic_binary", "Did you mean 'stochastic-binary'?"),
        ("tau_f!==0.1", "a condition has one of the signs <= >= != == = < >, got 'tau_f!==0.1'"),
        ("tau_f=>0.3", "a condition has one of the signs <= >= != == = < >, got 'tau_f=>0.3'"),
    ],
)
def test_a_value_that_no_run_could_have_is_refused(optimisers, cli, condition: str, message: str) -> None:
    for command in (("rm", "--yes"), ("show",)):
        ended = cli(*command, "--where", condition)
        assert ended.code == 2, command
        assert message in ended.err, command
    assert len(json.loads(cli("show", "--json", "--group", "id").out)) == 2


def test_a_value_that_a_run_could_have_is_none_of_these(optimisers, cli) -> None:
    for condition in ("tau_f=self", "tau_f=2:0.1:linear", "tau_b=none", "status=failed", "estimator.name=softmax-ste"):
        assert cli("rm", "--where", condition).code == 0, condition
    assert parse(["tau_f=2:0.1:linear", "tau_f=2.0:0.1:linear", "hidden=8,8", "hidden=[8, 8]"])


def _own(seed: int, **fields) -> Record:
    config = {"task": "own", "estimator": {"name": "gapped_ste", "tau": 1.0, "gap": 1.0}, "seed": seed, **fields}
    return Record(config=config, status="done", history={"validation_loss": Series(np.array([1]), np.array([1.0]))})


def test_truths_numbers_and_words_are_compared_as_what_they_are(cli) -> None:
    with Store.open("dst.sqlite", write=True) as store:
        store.put([_own(0, drop=False, rate=0.1), _own(1, drop=0.1, rate="2.0:0.1:linear"), _own(2, drop=0.2, act="a")])
    for condition, runs in (
        ("drop=False", 1), ("drop!=false", 2), ("drop=0.1", 1), ("drop!=0.10", 2), ("rate=2:0.1:linear", 1),
        ("rate!=0.10", 2), ("rate=self", 0), ("act=b", 0), ("rate=1:0.1:linear", 0),
    ):  # fmt: skip
        assert cli("rm", "--where", condition).out.startswith(f"{runs} runs of"), condition
    for condition, words in {
        "gap=p": "gap is a number in every run", "seed=0,1": "seed is a number in every run",
        "rate!=slef": "every run would fit 'rate!=slef', since none has this value: there are 0.1, 2.0:0.1:linear",
        "act!=tanh": "every run would fit 'act!=tanh', since none has this value: there are a.",
    }.items():  # fmt: skip
        ended = cli("rm", "--where", condition, "--yes")
        assert (ended.code, words in ended.err) == (2, True), (condition, ended.err)
    assert seeds_in(Path("dst.sqlite")) == [0, 1, 2]


def test_lists_of_runs_do_not_name_what_a_run_lacks(cli) -> None:
    with Store.open("dst.sqlite", write=True) as store:
        store.put([_own(0, act=None), _own(1), _own(2, act="relu")])
    told = [line.partition("seed=")[2].partition(" (")[0] for line in cli("rm", "--where", "tau=1").out.splitlines()]
    assert told == ["", "0 act=None", "1", "2 act=relu"]
