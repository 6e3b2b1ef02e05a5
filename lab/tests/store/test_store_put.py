"""What is recorded comes back bit for bit, once, and the first result of a run stays."""

import hashlib
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError, run_id

CONFIG = {"task": "t", "estimator": {"name": "decoupled", "tau_f": 0.1, "tau_b": 0.7}, "seed": 3}
ARRAYS = {
    "noise": np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], np.float32),
    "payload": np.array([0x7FC12345, 0xFF800001, 0x7F800001], np.uint32).view(np.float32),
    "double": np.array([0.1, np.pi, np.nan, -np.inf]),
    "half": np.array([[0.5], [65504]], np.float16),
    "flags": np.array([True, False, True]),
    "bytes": np.arange(256, dtype=np.uint8).reshape(2, 2, 64),
    "wide": np.array([2**63 - 1, -(2**63), 0]),
    "range": np.arange(390, 39_001, 390),
    "falling": np.arange(5, -5, -3),
    "uneven": np.array([1, 2, 4]),
    "one": np.array([7]),
    "none": np.empty((0, 4), np.float32),
    "scalar": np.array(1.5, np.float32),
    "strided": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3],
    "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    "big-endian": np.array([1.5, -2.25], ">f4"),
}


def test_a_run_comes_back_as_it_was_given(path):
    lists = {name: np.atleast_1d(array) for name, array in ARRAYS.items()}
    given = Record(
        config={**CONFIG, "text": "naïve", "nested": {"list": [1, 2.5, None, True]}},
        status="diverged",
        detail={"step": np.int64(120), "last": {"loss": float("nan"), "rate": np.float32(0.5)}},
        history={name: Series(np.arange(len(array)) ** 2, array) for name, array in lists.items()},
        artefacts=ARRAYS,
        provenance={"commit": "abc", "versions": {"numpy": "2"}},
    )
    with Store.open(path, write=True) as store:
        assert store.put([given]) == 1
    with Store.open(path) as store:
        (run,) = store.runs()
        history, artefacts = store.history(run.id), store.artefacts(run.id)
        assert store.provenance(run.id) == given.provenance
    assert (run.id, run.config, run.status) == (given.run_id, given.config, "diverged")
    assert (run.task, run.estimator, run.seed) == ("t", "decoupled", 3)
    assert math.isnan(run.detail["last"].pop("loss"))
    assert run.detail == {"step": 120, "last": {"rate": 0.5}}
    assert (list(history), list(artefacts)) == (list(lists), list(ARRAYS))
    back = [(artefacts[name], array) for name, array in ARRAYS.items()]
    back += [(history[name].values, array) for name, array in lists.items()]
    for found, array in back:
        little = array.astype(array.dtype.newbyteorder("<"))
        assert (found.dtype, found.shape) == (little.dtype, array.shape)
        assert found.tobytes() == little.tobytes()
    assert all(history[name].steps.tolist() == [i**2 for i in range(len(lists[name]))] for name in lists)


@pytest.mark.parametrize("before", ["failed", "stopped", "done", "diverged"])
@pytest.mark.parametrize("after", ["failed", "stopped", "done", "diverged"])
def test_the_first_result_stays_unless_it_was_no_final_one(before, after, path, record):
    weights = {"failed": 0, "stopped": 1, "done": 2, "diverged": 2}
    first = record(0, status=before, detail={"is": "first"}, provenance={"host": "one"})
    second = record(0, status=after, shift=1.0, provenance={"host": "two"})
    with Store.open(path, write=True) as store:
        assert store.put([first, first]) == 1
        gives_way = weights[after] > weights[before]
        assert store.put([second]) == gives_way
        assert store.put([second]) == 0
        (run,), kept = store.runs(), second if gives_way else first
        assert (run.status, run.detail) == (kept.status, kept.detail)
        assert store.history(run.id)["usage"].values.tobytes() == kept.history["usage"].values.tobytes()
        assert store.provenance(run.id) == kept.provenance
        assert store.finished() == ({run.id} if weights[run.status] == 2 else set())
        store.check_whole()
    with closing(sqlite3.connect(path)) as raw:
        tables = ("histories", "artefacts", "provenance")
        assert [raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables] == [1, 1, 1]


def test_a_put_is_all_or_nothing(path, record):
    def stumbling():
        yield record(1)
        raise KeyboardInterrupt

    broken = record(2)
    object.__setattr__(broken, "status", "unheard of")
    with Store.open(path, write=True) as store:
        store.put([record(0)])
        with pytest.raises(KeyboardInterrupt):
            store.put(stumbling())
        with pytest.raises(StoreError, match="CHECK constraint failed"):
            store.put([record(1), broken])
        assert [run.seed for run in store.runs()] == [0]
        assert store.put([record(1)]) == 1


def test_runs_are_filtered_by_every_field_given_and_removed(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(seed, estimator={"name": name}) for seed in range(3) for name in ("soft", "identity")])
        store.put([record(0, task="logic"), record(1, task="logic", status="diverged", provenance={"commit": "b"})])
        assert [run.seed for run in store.runs(estimator="soft")] == [0, 1, 2]
        assert [run.estimator for run in store.runs(seed=0, task="stochastic-binary")] == ["soft", "identity"]
        assert [run.task for run in store.runs(status="diverged")] == ["logic"]
        assert store.runs(task="logic", status="done", seed=1) == []
        assert store.remove([run.id for run in store.runs(task="logic")] + ["feedfacefeedface"]) == 2
        assert len(store.runs()) == 6
        for read in (store.history, store.artefacts, store.provenance, store.network):
            with pytest.raises(StoreError, match="no run 'feedfacefeedface'"):
                read("feedfacefeedface")
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM provenance").fetchone() == (1,), "equal ones are stored once"


def test_a_run_is_found_by_the_beginning_of_its_id(path, record):
    with Store.open(path, write=True) as store:
        store.put(record(seed) for seed in range(40))
        ids = [run.id for run in store.runs()]
        assert store.find(ids[7][:8]).id == ids[7]
        twice = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) == 2)
        with pytest.raises(StoreError, match=f"holds 2 runs whose ids begin with '{twice}'"):
            store.find(twice)
        for nothing in ("g", ""):
            with pytest.raises(StoreError, match=f"holds no run '{nothing}'"):
                store.find(nothing)


def test_a_reader_sees_what_is_recorded_meanwhile_and_records_nothing(path, record):
    with Store.open(path, write=True) as writer, Store.open(path) as reader:
        writer.put([record(0)])
        assert len(reader.runs()) == 1
        for change in (lambda: reader.put([record(1)]), lambda: reader.remove([]), lambda: reader.merge(path)):
            with pytest.raises(StoreError, match="opened for reading"):
                change()


def test_the_id_is_the_hash_of_the_canonical_text():
    text = '{"estimator":{"name":"decoupled","tau_b":0.7,"tau_f":0.1},"seed":3,"task":"t"}'
    assert run_id(CONFIG) == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert run_id(dict(reversed(CONFIG.items()))) == run_id(CONFIG) == Record(config=CONFIG, status="done").run_id
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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "finished"}, "one of done, diverged, failed, stopped: got 'finished'"),
        ({"history": {"": Series([0], [1.0])}}, "need a name"),
        ({"artefacts": {"": np.ones(2)}}, "need a name"),
        ({"artefacts": {"x": np.array([{}, []], dtype=object)}}, "'x' must hold booleans, integers or floats"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(fields, words):
    with pytest.raises(StoreError, match=words):
        Record(**{"config": CONFIG, "status": "done", **fields})


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


def test_the_steps_of_a_long_run_take_no_room_and_its_noise_less_than_it_has(path):
    steps, draw = np.arange(1, 101) * 390, np.random.default_rng(0)
    values = {f"loss_{i}": Series(steps, (0.3 + 0.01 * draw.standard_normal(100)).astype("f4")) for i in range(20)}
    with Store.open(path, write=True) as store:
        store.put(Record(config={**CONFIG, "seed": seed}, status="done", history=values) for seed in range(50))
    assert path.stat().st_size / 50 < 0.9 * 20 * 100 * 4
