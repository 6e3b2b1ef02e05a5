"""The one place that filters and averages runs, and their export: every value of every run as a row."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from dst_lab.records import Reader, Summary, summarise, summary, temperatures, versions
from dst_lab.records.export import COLUMNS, export
from dst_lab.records.summary import cautious, spread_of_seeds
from dst_lab.store import Record, Series, Store, StoreError

STEPS = np.arange(3)


def _run(seed, losses, *, status="done", tau_f=0.1, name="decoupled", provenance=None, **config):
    estimator = {"name": name, "tau_f": tau_f, "tau_b": 1.0} if name == "decoupled" else {"name": name}
    losses = np.array(losses, np.float64)
    return Record(
        config={"task": "t", "estimator": estimator, "seed": seed, "lr": 1e-3, **config},
        status=status,
        history={
            "valid_loss": Series(STEPS, losses),
            "valid_accuracy": Series(STEPS, 1 - losses),
            "codes": Series(STEPS, np.stack([losses, 2 * losses], axis=1)),
            "perplexity": Series(STEPS, np.stack([losses, 2 * losses], axis=1)),
            "norm": Series(STEPS, losses),
        },
        provenance=provenance or {},
    )


def _rows(store):
    return list(Reader(store).rows.values())


@pytest.fixture
def rows(tmp_path):
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(
            [
                _run(0, [0.5, 0.1, 0.2]),
                _run(1, [0.5, 0.3, 0.6]),
                _run(2, [0.5, np.nan, np.nan], status="diverged"),
                _run(0, [0.9, 0.8, 0.7], tau_f=2),
                _run(3, [0.9, 0.8, 0.7], tau_f=2, status="failed"),
                _run(4, [0.01, 0.01, 0.01], tau_f=2, status="stopped"),
                _run(0, [0.4, 0.4, 0.4], name="identity", lr=3e-3),
            ]
        )
        yield _rows(store)


def test_mean_and_spread_over_the_runs_that_are_done(rows):
    first, identity = summarise(rows, ["valid_loss", "valid_accuracy"], at="last")
    values = [0.2, 0.6, 0.7]
    statistics = {"n": 3, "mean": pytest.approx(0.5), "std": pytest.approx(np.std(values, ddof=1))}
    assert first == {
        **{"task": "t", "estimator": "decoupled", "diverged": 1, "failed": 1, "stopped": 1, "worse": 0},
        **{**statistics, "min": 0.2, "max": 0.7, "best": 0.2},
        **{f"valid_accuracy.{name}": value for name, value in statistics.items()},
        **{"valid_accuracy.min": pytest.approx(0.3), "valid_accuracy.max": pytest.approx(0.8)},
        "valid_accuracy.best": pytest.approx(0.8),
    }
    assert (identity["n"], identity["mean"], identity["std"]) == (1, 0.4, None)
    assert summary(rows, "valid_loss", "last").n == 4
    assert summary(rows, "nothing") == Summary(0)
    assert summary(rows[:1] * 3, "valid_loss").std == 0.0, "equal values have no spread, though their mean is rounded"


def test_best_is_low_for_a_loss_and_high_for_an_accuracy(rows):
    where = ["estimator.tau_f=0.1"]
    loss = summarise(rows, ["valid_loss"], where=where, at="best")[0]
    assert (loss["mean"], loss["best"]) == (pytest.approx((0.1 + 0.3) / 2), 0.1)
    accuracy = summarise(rows, ["valid_accuracy"], where=where, at="best")[0]
    assert (accuracy["mean"], accuracy["best"]) == (pytest.approx((0.9 + 0.7) / 2), 0.9)
    assert summarise(rows, ["valid_loss"], where=where) == summarise(rows, ["valid_loss"], where=where, at="best")
    with pytest.raises(StoreError, match="high or a low 'norm' is best is not known"):
        summarise(rows, ["norm"], at="best")
    assert {row["best"] for row in summarise(rows, ["norm"])} == {None}


def test_one_of_several_numbers_and_the_mean_of_those_that_count_by_it(rows):
    where = ["estimator=identity"]
    assert summarise(rows, ["codes[1]"], where=where)[0]["mean"] == 0.8
    assert summarise(rows, ["perplexity"], where=where, at="last")[0]["mean"] == pytest.approx(0.6), "as on a page"
    with pytest.raises(StoreError, match=r"choose among codes\[0\], codes\[1\]"):
        summarise(rows, ["codes"])


def test_a_last_value_that_is_nan_stays_visible_and_a_best_ignores_it(tmp_path):
    with Store.open(tmp_path / "nan.sqlite", write=True) as store:
        store.put([_run(0, [0.5, 0.25, np.nan]), _run(1, [0.5, 0.25, np.inf])])
        assert np.isnan(summarise(_rows(store)[:1], ["valid_loss"], at="last")[0]["mean"])
        assert summarise(_rows(store), ["valid_loss"], at="best")[0]["mean"] == 0.25


def test_fields_group_and_sort_by_number_with_the_missing_last(rows, tmp_path):
    table = summarise(rows, ["valid_loss"], group=["estimator.tau_f", "lr"])
    found = [(row["estimator.tau_f"], row["lr"], row["n"]) for row in table]
    assert found == [(0.1, 1e-3, 2), (2, 1e-3, 1), (None, 3e-3, 1)]
    # What is missing, None, True and 1 are four groups; 2 and 2.0 are one.
    given = [{}, {"x": None}, {"x": True}, {"x": 1}, {"x": 2}, {"x": 2.0}]
    with Store.open(tmp_path / "more.sqlite", write=True) as more:
        for number, fields in enumerate(given):
            one = _run(0, [float(number)] * 3)
            more.put([replace(one, config={**one.config, **fields})])
        table = summarise(_rows(more), ["valid_loss"], group=["x"])
    found = [(repr(row["x"]), row["n"], row["mean"]) for row in table]
    assert found == [("True", 1, 2.0), ("1", 1, 3.0), ("2", 2, 4.5), ("'None'", 1, 1.0), ("None", 1, 0.0)]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"metrics": ["valid_los"]}, "no run has the metric 'valid_los'; there are codes, .*Did you mean 'valid_loss'"),
        ({"metrics": ["valid_loss", "los"]}, "no run has the metric 'los'"),
        ({"metrics": ["norn"], "at": "best"}, "no run has the metric 'norn'"),
        ({"group": ["tau_g"]}, r"no run has the field 'tau_g'; .*estimator\.tau_f.*Did you mean 'tau_f'"),
        ({"where": ["lrr=1"]}, "no run has the field 'lrr'.*Did you mean 'lr'"),
        ({"at": "first"}, "'last' or its 'best' value: got at='first'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(rows, asked, words):
    with pytest.raises(StoreError, match=words):
        summarise(rows, **{"metrics": ["valid_loss"], **asked})


def test_a_mean_of_few_runs_is_ranked_by_the_spread_of_the_others():
    settings = [(4, 0.02), (2, 0.04), (2, math.nan), (1, None), (0, None)]
    assert spread_of_seeds(settings) == pytest.approx(0.03)
    assert spread_of_seeds([(2, 0.02), (2, 0.04), (0, None)]) == 0.0, "all have as many"
    assert spread_of_seeds([(1, None), (2, math.inf)]) == 0.0
    assert cautious(0.5, 4, 0.03) == pytest.approx(0.56)
    assert cautious(0.5, 1, 0.03, direction=1) == pytest.approx(0.38)
    assert cautious(0.5, 1, 0.03, direction=0) == cautious(0.5, 1, 0.03)


def test_versions_of_ones_own_code_that_are_pooled_are_said(tmp_path):
    origins = [{"task_source": "a", "estimator_source": "x"}, {"task_source": "b", "estimator_source": "x"}, {}]
    origins += [{"task_source": "b", "rule_source_calm": mark} for mark in "pq"]
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(_run(seed, [0.1] * 3, provenance=origin) for seed, origin in enumerate(origins))
        store.put(
            _run(seed, [0.1] * 3, objective="mine", task="own", provenance={"file": mark})
            for seed, mark in enumerate(("r", "r", "s", ""))
        )
        assert versions(store, store.runs()) == [
            "4 runs of the task t were trained by 2 versions of its code (3, 1), which count as one",
            "2 runs of the rule calm were trained by 2 versions of its code (1, 1), which count as one",
            "3 runs of the objective mine were trained by 2 versions of its code (2, 1), which count as one",
        ]
        assert versions(store, store.runs(task="t")[1:3]) == []


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ({"name": "decoupled", "tau_f": 0.1, "tau_b": 2}, (0.1, 2.0, "")),
        ({"name": "decoupled", "tau_f": 0, "tau_b": "2.0:0.25:linear"}, (0.0, 2.0, "tau_b=2.0:0.25:linear")),
        ({"name": "softmax-ste", "tau": 0.5}, (0.5, 0.5, "")),
        ({"name": "softmax_ste", "tau": "1:0.1:cosine"}, (1.0, 1.0, "tau_f=1:0.1:cosine;tau_b=1:0.1:cosine")),
        ({"name": "gumbel-ste", "tau": 0.5}, (1.0, 0.5, "")),
        ({"name": "gumbel_ste", "tau": 0.5}, (1.0, 0.5, "")),
        ({"name": "identity_ste"}, (0.0, None, "")),
        ({"name": "soft", "tau": 1.0}, (None, 1.0, "")),
        ({"name": "another"}, (None, None, "")),
    ],
)
def test_every_estimator_has_two_temperatures(estimator, expected):
    assert temperatures(estimator) == expected


def _read_csv(path):
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


def test_every_value_is_a_row_and_every_field_of_every_config_a_column(record, tmp_path):
    """Numbers, words, lists, a name that is taken, what differs in kind from run to run, and numbers too large."""
    history = {
        "loss": Series(np.array([0, 7]), np.array([np.nan, np.inf], np.float32)),
        "grid": Series(np.array([3]), np.arange(4.0).reshape(1, 2, 2) / 3),
    }
    annealed = {"name": "decoupled", "tau_f": "2.0:0.25:linear", "tau_b": 1.0}
    config = {"task": "a, task", "estimator": annealed, "seed": 8}
    fields = [
        {"lr": 0.1, "batch": 32, "hidden": [16, 8], "mode": "a", "value": 0.5, "key": 2**63},
        {"lr": 0.2, "mode": 3, "nested": {"depth": True}, "key": -(2**63) - 1, "size": 10**400},
    ]
    given = [Record(config=config | own, status="diverged", history=history) for own in fields]
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(given)
        assert export(store, tmp_path / "rows") == 2 * (2 + 4)
    header, rows = _read_csv(tmp_path / "rows")
    assert header == [*COLUMNS, "batch", "hidden", "key", "lr", "mode", "nested.depth", "size", "config.value"]
    who = [given[0].run_id, "a, task", "decoupled", "2.0", "1.0", "8"]
    after = ["tau_f=2.0:0.25:linear", "diverged", "32", "[16, 8]", "9223372036854775808", "0.1", "a", "", "", "0.5"]
    values = [("0", "loss", "nan"), ("7", "loss", "inf")]
    values += [("3", f"grid[{i},{j}]", str((2 * i + j) / 3)) for i in (0, 1) for j in (0, 1)]
    assert rows[:6] == [[*who, *value, *after] for value in values]
    other = ["", "", "-9223372036854775809", "0.2", "3", "True", str(10**400), ""]
    assert rows[6] == [given[1].run_id, *who[1:], *values[0], *after[:2], *other]
