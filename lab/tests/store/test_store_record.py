import hashlib
import subprocess
import sys

import dst_lab.store
import numpy as np
import pytest
from dst_lab.store import Record, Series, StoreError, run_id

CONFIG = {"task": "t", "estimator": {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7}, "seed": 3}


def test_the_id_is_the_hash_of_the_canonical_text():
    text = '{"estimator":{"name":"decoupled","tau_b":0.7,"tau_f":0.1},"seed":3,"task":"t"}'
    assert run_id(CONFIG) == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert Record(config=CONFIG, status="done").run_id == run_id(CONFIG)


def test_the_order_of_keys_does_not_matter_and_every_value_does():
    assert run_id(dict(reversed(CONFIG.items()))) == run_id(CONFIG)
    others = [{**CONFIG, "seed": 4}, {**CONFIG, "lr": 1}, {**CONFIG, "lr": 1.0}, {**CONFIG, "lr": "1"}]
    assert len({run_id(config) for config in [CONFIG, *others]}) == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": float("nan")}, "finite numbers"),
        ({"lr": np.float32(0.1)}, "finite numbers"),
        ({"task": 3}, "task=3"),
        ({"seed": "3"}, "seed='3'"),
        ({"seed": True}, "seed=True"),
        ({"seed": 2**63}, "below 2"),
        ({"estimator": "identity"}, "estimator='identity'"),
        ({"estimator": {"tau": 1.0}}, "estimator="),
    ],
)
def test_a_config_that_cannot_be_recorded_is_refused_at_once(change, words):
    with pytest.raises(StoreError, match=words):
        Record(config={**CONFIG, **change}, status="done")


def test_an_unknown_status_is_refused():
    with pytest.raises(StoreError, match="one of done, diverged, failed, stopped: got 'finished'"):
        Record(config=CONFIG, status="finished")


@pytest.mark.parametrize("names", [{"history": {"": Series([0], [1.0])}}, {"artefacts": {"": np.ones(2)}}])
def test_an_empty_name_is_refused(names):
    with pytest.raises(StoreError, match="need a name"):
        Record(config=CONFIG, status="done", **names)


@pytest.mark.parametrize(
    ("steps", "values", "words"),
    [
        ([0, 1], np.ones(3), r"steps \(2,\) and values \(3,\)"),
        ([[0, 1]], np.ones(1), r"steps \(1, 2\)"),
        ([0], np.float32(1), r"values \(\)"),
        ([0, 0], np.ones(2), r"must increase: got \[0, 0\]"),
        ([0.5, 1], np.ones(2), "integers: got dtype float64"),
        ([0, 1], np.array(["a", "b"]), "dtype <U1"),
        ([0, 1], np.ones(2, np.complex64), "dtype complex64"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(steps, values, words):
    with pytest.raises(StoreError, match=words):
        Series(np.array(steps), values)


def test_components_name_every_number_of_a_vector():
    values = np.arange(12).reshape(2, 2, 3)
    parts = dict(Series(np.array([0, 5]), values).components("w"))
    assert list(parts) == ["w[0,0]", "w[0,1]", "w[0,2]", "w[1,0]", "w[1,1]", "w[1,2]"]
    assert parts["w[1,2]"].tolist() == [5, 11]
    assert [name for name, _ in Series(np.array([0]), np.ones(1)).components("loss")] == ["loss"]


def test_the_public_names():
    assert dst_lab.store.__all__ == [
        "COLUMNS",
        "DamagedRunError",
        "MergeReport",
        "Record",
        "Run",
        "Series",
        "Store",
        "StoreError",
        "StoreWarning",
        "Temperatures",
        "export",
        "field",
        "run_id",
        "summarise",
        "temperatures",
    ]
    assert all(hasattr(dst_lab.store, name) for name in dst_lab.store.__all__)


def test_the_store_needs_no_torch():
    code = "import sys, dst_lab.store; print('torch' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
