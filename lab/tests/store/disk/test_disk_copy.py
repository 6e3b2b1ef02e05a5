"""A copy of a store that another process is writing."""

import os
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from dst_lab.store import Store, StoreError

# Half a megabyte at a time, so that a copy of the bare file would fall in the middle of a fold.
WRITE_FIFTIES = """
    with Store.open(sys.argv[1], write=True) as store:
        i = 0
        while True:
            store.put([record(i + k, points=3000) for k in range(50)])
            i += 50
            print(i, flush=True)
"""


def test_a_copy_of_a_live_store_is_of_one_moment(tmp_path, start):
    path, copies = tmp_path / "runs.sqlite", tmp_path / "copies"
    copies.mkdir()
    writer = start(WRITE_FIFTIES, path)
    counts = [int(writer.stdout.readline())]
    listener = threading.Thread(target=lambda: counts.extend(int(line) for line in writer.stdout), daemon=True)
    listener.start()
    sizes: list[int] = []
    end = time.monotonic() + 60
    with Store.open(path) as live:
        while len(sizes) < 8 or (sizes[-1] == sizes[0] and time.monotonic() < end):
            k, seen = len(sizes), counts[-1]
            live.copy(copies / f"{k}.sqlite")
            with Store.open(copies / f"{k}.sqlite") as copied:
                runs = copied.runs()
                assert [run.seed for run in runs] == list(range(len(runs)))
                assert len(runs) % 50 == 0
                assert len(runs) >= seen
                assert copied.history(runs[-1].id)["loss"].values.shape == (3000,)
            with closing(sqlite3.connect(copies / f"{k}.sqlite")) as raw:
                assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            sizes.append(len(runs))
    assert writer.poll() is None
    writer.kill()
    listener.join(10)
    assert sizes[-1] > sizes[0]
    assert sorted(os.listdir(copies)) == sorted(f"{k}.sqlite" for k in range(len(sizes)))


def test_a_copy_has_what_is_still_in_the_log(tmp_path, record):
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as writer, Store.open(path) as reader:
        writer.put([record(0)])
        reader._connection.execute("BEGIN")
        assert len(reader.runs()) == 1
        writer._connection.execute("PRAGMA busy_timeout=0")
        writer.put([record(1)])
        assert writer.fold() is False
        assert os.path.getsize(f"{path}-wal") > 0
        reader._connection.execute("COMMIT")
        reader.copy(tmp_path / "copy.sqlite")
        assert writer.fold() is True
    with Store.open(tmp_path / "copy.sqlite") as copied:
        assert [run.seed for run in copied.runs()] == [0, 1]


@pytest.fixture
def store(tmp_path, record):
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([record(0), record(1)])
        yield store


def test_a_copy_is_a_store_of_its_own(store, tmp_path, record):
    store.copy(tmp_path / "copy.sqlite")
    with Store.open(tmp_path / "copy.sqlite", write=True) as copied:
        assert copied.put([record(1), record(2)]) == 1
        assert copied.artefacts(record(0).run_id)["histogram"].tolist() == list(range(16))
    assert len(store.runs()) == 2


def test_a_file_is_overwritten_only_when_told(store, tmp_path, record):
    target = tmp_path / "copy.sqlite"
    target.write_text("mine")
    with pytest.raises(StoreError, match=r"copy\.sqlite exists already"):
        store.copy(target)
    assert target.read_text() == "mine"
    (tmp_path / "copy.sqlite-wal").write_text("a log of what was there before")
    store.copy(target, overwrite=True)
    with Store.open(target) as copied:
        assert len(copied.runs()) == 2
    assert not (tmp_path / "copy.sqlite-wal").exists()


def test_a_copy_never_replaces_the_store_itself_or_one_that_is_being_written(store, tmp_path):
    with pytest.raises(StoreError, match="is the store itself"):
        store.copy(store.path, overwrite=True)
    with (
        Store.open(tmp_path / "busy.sqlite", write=True),
        pytest.raises(StoreError, match="is being written by process"),
    ):
        store.copy(tmp_path / "busy.sqlite", overwrite=True)
    with pytest.raises(StoreError, match="nowhere does not exist"):
        store.copy(tmp_path / "nowhere" / "copy.sqlite")
    assert len(store.runs()) == 2


def test_a_copy_that_fails_leaves_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda a, b: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match=r"copy\.sqlite could not be written \(No space left on device\)"):
        store.copy(tmp_path / "copy.sqlite")
    assert not [name for name in os.listdir(tmp_path) if "copy" in name]


def test_a_damaged_store_is_not_copied_and_is_the_one_that_is_named(store, tmp_path):
    store.copy(tmp_path / "sound.sqlite")
    with closing(sqlite3.connect(tmp_path / "sound.sqlite")) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'histories'").fetchone()
    damaged = bytearray((tmp_path / "sound.sqlite").read_bytes())
    damaged[1024 * (root - 1) : 1024 * root] = b"\xa5" * 1024
    (tmp_path / "damaged.sqlite").write_bytes(damaged)
    with (
        Store.open(tmp_path / "damaged.sqlite") as source,
        pytest.raises(StoreError, match=r"damaged\.sqlite: the file is damaged"),
    ):
        source.copy(tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()
