"""Files that are no store, or no longer one: refused in a sentence, and not changed by a byte."""

import os
import sqlite3
from contextlib import closing

import pytest
from dst_lab.store import Store, StoreError
from dst_lab.store.disk.schema import APPLICATION_ID


def _good(path, record, runs=30):
    with Store.open(path, write=True) as store:
        store.put([record(seed) for seed in range(runs)])


def _garbage(path, record):
    path.write_bytes(b"PK\x03\x04 this is a zip file, perhaps" * 50)


def _short_garbage(path, record):
    path.write_bytes(b"x")


def _foreign(path, record):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA application_id=77")
        raw.execute("CREATE TABLE bookmarks (url)")
        raw.commit()


def _foreign_with_log(path, record):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("CREATE TABLE bookmarks (url)")
        raw.commit()


def _newer(path, record):
    _good(path, record)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version=2")


def _unfinished(path, record):
    _good(path, record)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version=0")


def _cut_in_the_header(path, record):
    _good(path, record)
    os.truncate(path, 60)


def _cut_short(path, record):
    _good(path, record)
    os.truncate(path, path.stat().st_size - 1)


def _cut_to_a_page(path, record):
    _good(path, record)
    os.truncate(path, 4096)


CASES = {
    _garbage: r"is not a dst store: it begins with b'PK\\x03\\x04",
    _short_garbage: "is not a dst store: it begins with b'x'",
    _foreign: "SQLite file of another program .*0x0000004d",
    _foreign_with_log: "SQLite file of another program",
    _newer: "a dst store of format 2, and this version reads format 1. Upgrade",
    _unfinished: "format 0, .* damaged",
    _cut_in_the_header: "only 60 bytes are left",
    _cut_short: "cut short, 1 bytes are missing",
    _cut_to_a_page: "cut short",
}


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("make", CASES)
def test_what_is_no_store_is_refused_and_left_alone(make, write, tmp_path, record, snapshot):
    path = tmp_path / "runs.sqlite"
    make(path, record)
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match=CASES[make]) as caught:
        Store.open(path, write=write)
    assert str(path) in str(caught.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("page", [2, 5, 9])
def test_damage_in_the_middle_is_found_before_anything_is_written(page, tmp_path, record, snapshot):
    path = tmp_path / "runs.sqlite"
    _good(path, record)
    with open(path, "r+b") as file:
        file.seek(1024 * (page - 1))
        file.write(b"\xa5" * 1024)
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match=r"damaged .*Restore it from a copy"):
        Store.open(path, write=True)
    assert snapshot(tmp_path) == before


def test_damage_that_a_reader_meets_is_a_sentence(tmp_path, record, snapshot):
    path = tmp_path / "runs.sqlite"
    _good(path, record)
    with closing(sqlite3.connect(path)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'histories'").fetchone()
    with open(path, "r+b") as file:
        file.seek(1024 * (root - 1))
        file.write(b"\xa5" * 1024)
    before = snapshot(tmp_path)
    with Store.open(path) as store, pytest.raises(StoreError, match=r"damaged .*malformed"):
        store.history(record(0).run_id)
    assert snapshot(tmp_path) == before


def test_a_missing_store_is_only_made_by_a_writer(tmp_path):
    path = tmp_path / "runs.sqlite"
    for options in ({}, {"write": True, "create": False}):
        with pytest.raises(StoreError, match=f"there is no store at {path}"):
            Store.open(path, **options)
        assert list(tmp_path.iterdir()) == []
    with Store.open(path, write=True) as store:
        assert store.runs() == []
    assert [p.name for p in tmp_path.iterdir()] == ["runs.sqlite"]
    assert int.from_bytes(path.read_bytes()[68:72], "big") == APPLICATION_ID


def test_an_empty_file_becomes_a_store_only_when_written(tmp_path, record):
    path = tmp_path / "runs.sqlite"
    path.touch()
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(path)
    assert path.read_bytes() == b""
    with Store.open(path, write=True) as store:
        assert store.put([record(0)]) == 1


def test_a_log_whose_store_was_deleted_is_not_replayed_into_a_new_one(tmp_path, record, finish):
    path = tmp_path / "runs.sqlite"
    script = """
        store = Store.open(sys.argv[1], write=True)
        store._connection.execute("BEGIN")
        store._connection.execute("INSERT INTO provenance VALUES ('old', '{}')")
        store._connection.execute("COMMIT")
        os._exit(0)
    """
    finish(script, path)
    assert (tmp_path / "runs.sqlite-wal").stat().st_size > 0
    path.unlink()
    with Store.open(path, write=True) as store:
        assert store._query("SELECT count(*) FROM provenance") == [(0,)]
        assert store.put([record(0)]) == 1


def test_a_missing_folder_and_a_folder_are_named(tmp_path):
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        Store.open(tmp_path / "nowhere" / "runs.sqlite", write=True)
    for write in (False, True):
        with pytest.raises(StoreError, match="is not a file"):
            Store.open(tmp_path, write=write)


def test_odd_names_are_just_names(tmp_path, record):
    path = tmp_path / "a b?mode=memory#x%20é.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    with Store.open(str(path)) as store:
        assert len(store.runs()) == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_link_leads_to_the_same_store_and_lock(tmp_path, record):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "real" / "runs.sqlite")
    with Store.open(link, write=True) as store:
        store.put([record(0)])
        with pytest.raises(StoreError, match="is being written by process"):
            Store.open(tmp_path / "real" / "runs.sqlite", write=True)
    assert [p.name for p in (tmp_path / "real").iterdir()] == ["runs.sqlite"]
    assert link.is_symlink()
