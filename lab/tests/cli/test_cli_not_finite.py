"""Metrics that are NaN or infinite in runs that are done: a task of one's own may record such."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from dst_lab.figures.style import plus_minus
from dst_lab.store import Record, Series, Store

LOSSES = {0.1: 3.0, 0.2: np.nan, 0.3: 1.0, 0.4: np.inf, 0.5: np.nan, 0.6: 2.0}


@pytest.fixture
def store(cli) -> Path:
    with Store.open("dst.sqlite", write=True) as store:
        store.put([_record(lr, value, seed) for lr, value in LOSSES.items() for seed in (0, 1)])
    return Path("dst.sqlite")


def _record(lr: float, value: float, seed: int) -> Record:
    config = {"task": "somebodys", "estimator": {"name": "decoupled", "tau_f": 1.0}, "seed": seed, "lr": lr}
    steps = np.array([1, 2])
    history = {
        "validation_loss": Series(steps, np.array([9.0, 1.0 / lr])),
        "test_loss": Series(steps, np.array([value, value])),
    }
    return Record(config=config, status="done", history=history)


def test_what_is_no_number_comes_last_and_the_others_in_their_order(store, cli) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = json.loads(cli("show", "--metric", "test_loss", "--json").out)
        by_mean = json.loads(cli("show", "--metric", "test_loss", "--json", "--sort", "mean").out)
    assert [row["lr"] for row in shown] == [0.3, 0.6, 0.1, 0.4, 0.2, 0.5]
    assert [row["lr"] for row in by_mean] == [0.3, 0.6, 0.1, 0.2, 0.4, 0.5]
    assert [(row["n"], row["mean"]) for row in shown] == [(2, 1.0), (2, 2.0), (2, 3.0), (2, None), (2, None), (2, None)]


def test_a_page_is_made_all_the_same(store, cli) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = cli("report", "--out", "page.html")
    assert (told.code, told.err) == (0, "")
    with Store.open("nan.sqlite", write=True) as opened:
        opened.put([_record(0.2, np.nan, seed) for seed in (0, 1)])
    assert cli("report", "--store", "nan.sqlite", "--out", "nan.html").code == 0
    assert "test loss at the end" in Path("nan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([np.nan, np.nan], "nan"),
        ([1.0, np.nan], "nan"),
        ([1.0, np.inf], "inf"),
        ([np.inf], "inf"),
        ([2e20, 4e20], "3e+20 ± 1.4e+20"),
        ([1.0, 3.0], "2.000 ± 1.414"),
    ],
)
def test_mean_and_deviation_in_words(values, text) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plus_minus(np.array(values)) == text
