from dataclasses import replace

import numpy as np
import pytest
from dst_lab.records import summarise
from dst_lab.store import Record, Series, Store, StoreError

STEPS = np.arange(3)


def _run(seed, losses, *, status="done", tau_f=0.1, name="decoupled", **config):
    estimator = {"name": name, "tau_f": tau_f, "tau_b": 1.0} if name == "decoupled" else {"name": name}
    losses = np.array(losses, np.float64)
    return Record(
        config={"task": "t", "estimator": estimator, "seed": seed, "lr": 1e-3, **config},
        status=status,
        history={
            "valid_loss": Series(STEPS, losses),
            "valid_accuracy": Series(STEPS, 1 - losses),
            "perplexity": Series(STEPS, np.stack([losses, 2 * losses], axis=1)),
            "norm": Series(STEPS, losses),
        },
    )


@pytest.fixture
def store(tmp_path):
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
        yield store


def test_mean_and_spread_over_the_runs_that_are_done(store):
    decoupled, identity = summarise(store, metric="valid_loss")
    assert decoupled == {
        "task": "t",
        "estimator": "decoupled",
        "n": 3,
        "mean": pytest.approx((0.2 + 0.6 + 0.7) / 3),
        "std": pytest.approx(np.std([0.2, 0.6, 0.7], ddof=1)),
        "min": 0.2,
        "max": 0.7,
        "best": 0.2,
        "diverged": 1,
        "failed": 1,
        "stopped": 1,
        "worse": 0,
    }
    assert (identity["n"], identity["mean"], identity["std"]) == (1, 0.4, None)


def test_dotted_fields_group_and_sort_by_number_with_the_missing_last(store):
    rows = summarise(store, metric="valid_loss", group=["estimator.tau_f", "lr"])
    assert [(row["estimator.tau_f"], row["lr"], row["n"]) for row in rows] == [
        (0.1, 1e-3, 2),
        (2, 1e-3, 1),
        (None, 3e-3, 1),
    ]


def test_what_is_missing_none_true_and_one_are_four_groups(tmp_path):
    """2 and 2.0 are one, as everywhere."""
    given = [{}, {"x": None}, {"x": True}, {"x": 1}, {"x": 2}, {"x": 2.0}]
    with Store.open(tmp_path / "more.sqlite", write=True) as more:
        for number, fields in enumerate(given):
            one = _run(0, [float(number)] * 3)
            more.put([replace(one, config={**one.config, **fields})])
        rows = summarise(more, metric="valid_loss", group=["x"])
    told = [(repr(row["x"]), row["n"], row["mean"]) for row in rows]
    assert told == [("True", 1, 2.0), ("1", 1, 3.0), ("2", 2, 4.5), ("'None'", 1, 1.0), ("None", 1, 0.0)]


@pytest.mark.parametrize(
    ("where", "counts"),
    [
        (["estimator=decoupled"], 3),
        (["estimator.tau_f=0.10"], 2),
        (["estimator.tau_f=2.0", "seed=0"], 1),
        (["lr=0.003"], 1),
        (["status=done", "seed=0"], 3),
    ],
)
def test_where_compares_numbers_as_numbers(store, where, counts):
    (row,) = summarise(store, metric="valid_loss", where=where, group=["task"])
    assert row["n"] == counts


def test_nothing_fits_gives_no_rows(store):
    assert summarise(store, metric="valid_loss", where=["seed=77"]) == []


def test_best_is_low_for_a_loss_and_high_for_an_accuracy(store):
    loss = summarise(store, metric="valid_loss", where=["estimator.tau_f=0.1"], at="best")[0]
    assert (loss["mean"], loss["best"]) == (pytest.approx((0.1 + 0.3) / 2), 0.1)
    accuracy = summarise(store, metric="valid_accuracy", where=["estimator.tau_f=0.1"], at="best")[0]
    assert (accuracy["mean"], accuracy["best"]) == (pytest.approx((0.9 + 0.7) / 2), 0.9)


def test_one_component_of_a_vector(store):
    row = summarise(store, metric="perplexity[1]", where=["estimator=identity"], at="best")[0]
    assert row["mean"] == 0.8
    with pytest.raises(StoreError, match=r"choose among perplexity\[0\], perplexity\[1\]"):
        summarise(store, metric="perplexity")


def test_a_metric_that_is_one_number_in_some_runs_and_several_in_others(store):
    alone = _run(0, [0.3, 0.2, 0.1], task="u")
    alone.history["perplexity"] = Series(STEPS, np.array([3.0, 2.0, 1.0]))
    store.put([alone])
    for metric, task in (("perplexity", "u"), ("perplexity[0]", "t")):
        rows = summarise(store, metric=metric, group=["task"])
        assert [row["task"] for row in rows if row["n"]] == [task]


def test_best_of_a_metric_without_a_direction(store):
    with pytest.raises(StoreError, match="high or a low 'norm' is best is not known"):
        summarise(store, metric="norm", at="best")
    assert {row["best"] for row in summarise(store, metric="norm")} == {None}


def test_a_last_value_that_is_nan_stays_visible_and_a_best_ignores_it(tmp_path):
    with Store.open(tmp_path / "nan.sqlite", write=True) as store:
        store.put([_run(0, [0.5, 0.25, np.nan])])
        assert np.isnan(summarise(store, metric="valid_loss")[0]["mean"])
        assert summarise(store, metric="valid_loss", at="best")[0]["mean"] == 0.25


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"metric": "los"}, "no run has the metric 'los'; there are norm, perplexity, valid_accuracy, valid_loss"),
        ({"metric": "los", "at": "best"}, "no run has the metric 'los'; there are norm, perplexity, valid_accuracy, "),
        ({"metric": "valid_loss", "group": ["tau_g"]}, r"no run has the field 'tau_g'; .*estimator\.tau_f"),
        ({"metric": "valid_loss", "where": ["lrr=1"]}, "no run has the field 'lrr'"),
        ({"metric": "valid_loss", "at": "first"}, "'last' or its 'best' value: got at='first'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(store, asked, words):
    with pytest.raises(StoreError, match=words):
        summarise(store, **asked)
