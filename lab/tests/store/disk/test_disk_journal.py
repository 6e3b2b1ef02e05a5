"""How the file is kept: its log while it is written, one plain file at rest, and what happens without a log."""

import os
import subprocess

import pytest
from dst_lab.store import Store, StoreError

LEFT_BY_A_KILLED_WRITER = """
    store = Store.open(sys.argv[1], write=True)
    store.put([record(0)])
    os._exit(0)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.sqlite"


def _pragma(store, name):
    return store._query(f"PRAGMA {name}")[0][0]


def test_a_writer_has_a_log_waits_for_the_disk_and_checks_references(path):
    with Store.open(path, write=True) as store:
        assert _pragma(store, "journal_mode") == "wal"
        assert _pragma(store, "synchronous") == 2
        assert _pragma(store, "foreign_keys") == 1


def test_after_a_put_the_file_alone_is_whole(path, record, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    with Store.open(path, write=True) as store:
        for seed in range(3):
            store.put([record(seed)])
            assert (tmp_path / "runs.sqlite-wal").stat().st_size == 0
            # Another process copies: opening the file in this one would drop the locks that SQLite holds on it.
            subprocess.run(["cp", path, alone / f"{seed}.sqlite"], check=True)
    for seed in range(3):
        with Store.open(alone / f"{seed}.sqlite") as copied:
            assert [run.seed for run in copied.runs()] == list(range(seed + 1))
            last = copied.history(record(seed).run_id)["valid_loss"].values
            assert last.tobytes() == record(seed).history["valid_loss"].values.tobytes()


def test_at_rest_there_is_one_file_and_reading_adds_none(path, record, tmp_path, snapshot):
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    before = snapshot(tmp_path)
    assert list(before) == ["runs.sqlite"]
    with Store.open(path) as store:
        assert len(store.runs()) == 1
        assert list(snapshot(tmp_path)) == ["runs.sqlite"]
    assert snapshot(tmp_path) == before


def test_a_reader_sees_what_is_recorded_while_it_is_open(path, record):
    with Store.open(path, write=True) as writer, Store.open(path) as reader:
        assert reader.runs() == []
        writer.put([record(0)])
        assert reader.finished() == {record(0).run_id}


def test_a_reader_that_stays_does_not_keep_the_writer_from_closing(path, record):
    writer = Store.open(path, write=True)
    with Store.open(path) as reader:
        writer.put([record(0)])
        writer.close()
        assert len(reader.runs()) == 1
        with Store.open(path, write=True) as again:
            assert again.put([record(1)]) == 1
        assert len(reader.runs()) == 2


def test_a_reader_in_the_same_process_leaves_the_writers_locks_alone(path, record, finish):
    """POSIX drops all locks of a process on a file when any descriptor of it is closed."""
    with Store.open(path, write=True) as writer:
        with Store.open(path) as reader:
            assert reader.runs() == []
        script = """
            import sqlite3
            other = sqlite3.connect(sys.argv[1], timeout=0)
            try:
                print(other.execute("PRAGMA journal_mode=DELETE").fetchone())
            except sqlite3.OperationalError as error:
                print(error)
        """
        assert "locked" in finish(script, path)
        assert writer.put([record(0)]) == 1


def test_what_a_reader_may_not_do(path, record):
    with Store.open(path, write=True):
        pass
    with Store.open(path) as store:
        for act in (lambda: store.put([record(0)]), lambda: store.merge(path), store.fold):
            with pytest.raises(StoreError, match=r"opened for reading. Open it with write=True"):
                act()


def _without_shared_memory(path):
    """SQLite cannot map a folder, so that its log does not work here, as on some file systems."""
    os.mkdir(f"{path}-shm")


def test_without_shared_memory_the_store_works_without_a_log(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    _without_shared_memory(path)
    with Store.open(path, write=True) as store:
        assert _pragma(store, "journal_mode") == "delete"
        assert _pragma(store, "synchronous") == 3
        assert store.put([record(1)]) == 1
        with Store.open(path) as reader:
            assert len(reader.runs()) == 2
    with Store.open(path) as reader:
        assert [run.seed for run in reader.runs()] == [0, 1]


def test_a_store_that_expects_a_log_can_come_to_where_there_is_none(path, record, finish, tmp_path):
    finish(LEFT_BY_A_KILLED_WRITER, path)
    assert path.read_bytes()[18:20] == b"\2\2"
    for side in ("-shm", "-wal"):
        (tmp_path / f"runs.sqlite{side}").unlink()
    _without_shared_memory(path)
    with Store.open(path) as reader:
        assert len(reader.runs()) == 1
    with Store.open(path, write=True) as store:
        assert _pragma(store, "journal_mode") == "delete"
        assert store.put([record(1)]) == 1
    assert path.read_bytes()[18:20] == b"\1\1"


def test_a_reader_undoes_what_a_writer_without_a_log_had_half_written(path, record, finish):
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    _without_shared_memory(path)
    half = """
        store = Store.open(sys.argv[1], write=True)
        store._connection.execute("PRAGMA cache_size=1")
        store._connection.execute("BEGIN")
        from dst_lab.store.contents import rows
        for i in range(200):
            rows.insert(store._connection, rows.encode(record(i)))
        os._exit(0)
    """
    finish(half, path)
    assert os.path.getsize(f"{path}-journal") > 0
    with Store.open(path) as reader:
        assert [run.task for run in reader.runs()] == ["stochastic-binary"]
    assert not os.path.exists(f"{path}-journal")
