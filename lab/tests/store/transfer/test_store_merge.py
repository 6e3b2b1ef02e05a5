import sqlite3
from contextlib import closing

import pytest
from dst_lab.store import MergeReport, Store, StoreError


def _write(path, records):
    with Store.open(path, write=True) as store:
        store.put(records)
    return path


def _content(path):
    with Store.open(path) as store:
        return {
            run.id: (
                run.status,
                run.config,
                store.provenance(run.id),
                store.history(run.id)["valid_loss"].values.tobytes(),
                store.artefacts(run.id)["histogram"].tobytes(),
            )
            for run in store.runs()
        }


def test_pieces_become_one_and_merging_again_changes_nothing(tmp_path, record):
    pieces = [
        _write(tmp_path / f"{k}.sqlite", [record(s, provenance={"host": k}) for s in range(3 * k, 3 * k + 3)])
        for k in range(3)
    ]
    whole = _write(tmp_path / "whole.sqlite", [])
    with Store.open(whole, write=True) as store:
        reports = [store.merge(piece) for piece in pieces]
        again = [store.merge(piece) for piece in pieces]
    assert reports == [MergeReport(added=3, already=0, replaced=0, differing=())] * 3
    assert again == [MergeReport(added=0, already=3, replaced=0, differing=())] * 3
    assert _content(whole) == _content(pieces[0]) | _content(pieces[1]) | _content(pieces[2])
    assert len(_content(whole)) == 9


def test_overlapping_stores_agree_on_the_rules_of_put(tmp_path, record):
    ours = [record(0), record(1, status="failed"), record(2), record(3, status="failed"), record(4)]
    theirs = [record(0), record(1), record(2, shift=1.0), record(3, status="failed"), record(4, status="failed")]
    target = _write(tmp_path / "a.sqlite", ours)
    other = _write(tmp_path / "b.sqlite", [*theirs, record(5)])
    with Store.open(target, write=True) as store:
        report = store.merge(other)
    assert report == MergeReport(added=1, already=4, replaced=1, differing=(record(2).run_id,))
    merged = _content(target)
    assert [merged[record(s).run_id][0] for s in range(6)] == ["done", "done", "done", "failed", "done", "done"]
    assert merged[record(2).run_id][3] == record(2).history["valid_loss"].values.tobytes()


def test_the_other_store_is_not_changed(tmp_path, record, snapshot):
    (tmp_path / "other").mkdir()
    other = _write(tmp_path / "other" / "b.sqlite", [record(0)])
    before = snapshot(other.parent)
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        store.merge(other)
    assert snapshot(other.parent) == before


def test_merging_a_store_with_itself_changes_nothing(tmp_path, record):
    path = _write(tmp_path / "a.sqlite", [record(0), record(1)])
    with Store.open(path, write=True) as store:
        assert store.merge(path) == MergeReport(added=0, already=2, replaced=0, differing=())
        assert store.put([record(2)]) == 1


def test_damage_does_not_spread(tmp_path, record):
    other = _write(tmp_path / "b.sqlite", [record(0), record(1)])
    with closing(sqlite3.connect(other)) as raw, raw:
        raw.execute("UPDATE histories SET body = substr(body, 1, length(body) - 1) WHERE run = 2")
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        with pytest.raises(StoreError, match=rf"b\.sqlite: the record of run {record(1).run_id} is damaged"):
            store.merge(other)
        assert store.runs() == []


def test_a_missing_store_is_named(tmp_path):
    with (
        Store.open(tmp_path / "a.sqlite", write=True) as store,
        pytest.raises(StoreError, match=r"no store at .*gone\.sqlite"),
    ):
        store.merge(tmp_path / "gone.sqlite")
