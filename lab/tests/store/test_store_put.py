import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError
from dst_lab.store.contents import blob


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.sqlite"


def _equal(a: Series, b: Series) -> bool:
    return (
        a.steps.tolist() == b.steps.tolist()
        and a.values.dtype == b.values.dtype
        and a.values.shape == b.values.shape
        and a.values.tobytes() == b.values.tobytes()
    )


def test_a_run_comes_back_as_it_was_given(path, record):
    wild = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    odd = np.array([0, 1, 5, 6, 1000])
    given = Record(
        config={**record(3).config, "text": "naïve", "nested": {"list": [1, 2.5, None, True]}},
        status="diverged",
        detail={"step": np.int64(120), "reason": "loss", "last": {"loss": float("nan"), "rate": np.float32(0.5)}},
        history={
            "wild": Series(odd, wild),
            "counts": Series(odd, np.arange(5)),
            "double": Series(np.arange(3), np.array([[0.1, 0.2], [np.pi, np.e], [1e300, np.nan]])),
            "never": Series(np.empty(0, np.int64), np.empty((0, 4), np.float32)),
        },
        artefacts={"images": np.arange(32, dtype=np.uint8).reshape(2, 4, 4), "scalar": np.array(2.5)},
        provenance={"commit": "abc", "dirty": True, "versions": {"numpy": "2"}},
    )
    with Store.open(path, write=True) as store:
        assert store.put([given]) == 1
    with Store.open(path) as store:
        (run,) = store.runs()
        history, artefacts = store.history(run.id), store.artefacts(run.id)
        provenance = store.provenance(run.id)
    assert run.id == given.run_id
    assert run.config == given.config
    assert (run.task, run.estimator, run.seed, run.status) == ("stochastic-binary", "decoupled", 3, "diverged")
    assert math.isnan(run.detail["last"].pop("loss"))
    assert run.detail == {"step": 120, "reason": "loss", "last": {"rate": 0.5}}
    assert list(history) == list(given.history)
    assert all(_equal(history[name], given.history[name]) for name in history)
    assert list(artefacts) == ["images", "scalar"]
    assert all(artefacts[n].tobytes() == given.artefacts[n].tobytes() for n in artefacts)
    assert artefacts["images"].shape == (2, 4, 4)
    assert artefacts["images"].dtype == np.uint8
    assert provenance == given.provenance


def test_putting_again_changes_nothing(path, record):
    runs = [record(seed) for seed in range(4)]
    with Store.open(path, write=True) as store:
        assert store.put(runs) == 4
        before = [(run.id, store.history(run.id)["valid_loss"].values.tolist()) for run in store.runs()]
        assert store.put(runs) == 0
        assert store.put([runs[1], record(9), record(9)]) == 1
        after = [(run.id, store.history(run.id)["valid_loss"].values.tolist()) for run in store.runs()]
    assert after[:4] == before
    assert len(after) == 5


def test_the_first_result_stays(path, record):
    first = record(0, provenance={"host": "one"})
    with Store.open(path, write=True) as store:
        store.put([first])
        assert store.put([record(0, shift=1.0, provenance={"host": "two"}), record(0, status="failed")]) == 0
        kept = store.history(first.run_id)["valid_loss"].values
        assert kept.tolist() == first.history["valid_loss"].values.tolist()
        assert store.provenance(first.run_id) == {"host": "one"}


@pytest.mark.parametrize("status", ["done", "diverged"])
def test_only_a_failed_run_gives_way(path, record, status):
    failed = record(0, status="failed", detail={"reason": "out of memory"}, provenance={"host": "one"})
    with Store.open(path, write=True) as store:
        assert store.put([failed]) == 1
        assert store.put([record(0, status="failed", detail={"reason": "again"})]) == 0
        assert store.runs()[0].detail == {"reason": "out of memory"}
        assert store.put([record(0, status=status, shift=1.0, provenance={"host": "two"})]) == 1
        (run,) = store.runs()
        assert (run.status, run.detail) == (status, {})
        assert store.history(run.id)["valid_loss"].values[0] == record(0, shift=1.0).history["valid_loss"].values[0]
        assert store.provenance(run.id) == {"host": "two"}
        assert store.put([failed]) == 0
        assert store.runs()[0].status == status
    with closing(sqlite3.connect(path)) as raw:
        counts = [raw.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("histories", "artefacts")]
        hosts = raw.execute("SELECT body FROM provenance").fetchall()
    assert counts == [1, 1]
    assert hosts == [('{"host":"two"}',)]


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


def test_finished_are_the_done_and_the_diverged(path, record):
    runs = [record(0), record(1, status="diverged"), record(2, status="failed")]
    with Store.open(path, write=True) as store:
        store.put(runs)
        assert store.finished() == {runs[0].run_id, runs[1].run_id}


def test_runs_are_filtered_by_every_field_given(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(seed, estimator={"name": name}) for seed in range(3) for name in ("soft", "identity")])
        store.put([record(0, task="logic"), record(1, task="logic", status="diverged")])
        assert [run.seed for run in store.runs(estimator="soft")] == [0, 1, 2]
        assert [run.estimator for run in store.runs(seed=0, task="stochastic-binary")] == ["soft", "identity"]
        assert [run.task for run in store.runs(status="diverged")] == ["logic"]
        assert store.runs(task="logic", status="done", seed=1) == []
        assert len(store.runs()) == 8


def test_equal_provenance_is_stored_once(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(seed) for seed in range(5)])
        assert len({run.provenance_id for run in store.runs()}) == 1
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM provenance").fetchone() == (1,)


def test_an_unknown_run_is_named(path, record):
    with Store.open(path, write=True) as store:
        for read in (store.history, store.artefacts, store.provenance):
            with pytest.raises(StoreError, match="no run 'feedfacefeedface'"):
                read("feedfacefeedface")


@pytest.mark.parametrize("table", ["histories", "artefacts"])
def test_a_damaged_blob_names_its_run(path, record, table):
    with Store.open(path, write=True) as store:
        store.put([record(0), record(1)])
    damaged = bytearray(blob.pack({"x": np.ones(9)}))
    damaged[-1] ^= 1
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"UPDATE {table} SET body = ? WHERE run = 2", (bytes(damaged),))
    with Store.open(path) as store:
        read = store.history if table == "histories" else store.artefacts
        assert read(record(0).run_id)
        with pytest.raises(StoreError, match=rf"run {record(1).run_id} is damaged \(its checksum does not match\)"):
            read(record(1).run_id)


def test_a_damaged_config_names_its_run(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE runs SET config = replace(config, '0.7', '0.6')")
    with Store.open(path) as store, pytest.raises(StoreError, match=f"config of run {record(0).run_id} is damaged"):
        store.runs()
