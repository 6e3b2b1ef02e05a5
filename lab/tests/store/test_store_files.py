"""The file of a store: what is refused, what damage is said, and what kills, full disks and second writers leave."""

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import DamagedRunError, Store, StoreError
from dst_lab.store.files import APPLICATION_ID

resource = pytest.importorskip("resource", reason="limits on file sizes are POSIX")


def _put(path, *records):
    with Store.open(path, write=True) as store:
        store.put(records)
    return path


def _sql(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.execute(statement)


def _foreign(path):
    path.unlink()
    _sql(path, "PRAGMA application_id=77", "CREATE TABLE bookmarks (url)")


CASES = {
    "garbage": (lambda path: path.write_bytes(b"PK\x03\x04" * 99), r"not a dst store \(file is not a database\)"),
    "short": (lambda path: path.write_bytes(b"x"), "not a dst store"),
    "foreign": (_foreign, "not a dst store: it is an SQLite file of another program"),
    "newer": (lambda path: _sql(path, "PRAGMA user_version=2"), "format 2, and this version reads format 1. Upgrade"),
    "older": (lambda path: _sql(path, "PRAGMA user_version=0"), "format 0, .* damaged"),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size - 1024), "the file is damaged"),
    "cut to a page": (lambda path: os.truncate(path, 4096), "the file is damaged"),
    "without a table": (lambda path: _sql(path, "DROP TABLE provenance"), "the file is damaged"),
}


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_is_no_store_is_refused_and_left_alone(case, write, path, tmp_path, record, snapshot):
    make, words = CASES[case]
    make(_put(path, record(0)))
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match=words) as caught:
        Store.open(path, write=write)
    assert str(path) in str(caught.value)
    assert snapshot(tmp_path) == before


def test_a_missing_or_empty_store_is_only_made_by_a_writer(path, tmp_path, record):
    for options in ({}, {"write": True, "create": False}):
        with pytest.raises(StoreError, match=f"there is no store at {path}"):
            Store.open(path, **options)
        assert list(tmp_path.iterdir()) == []
    path.touch()
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(path)
    with Store.open(path, write=True) as store:
        assert store.runs() == []
        assert store.put([record(0)]) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["runs.sqlite"]
    assert int.from_bytes(path.read_bytes()[68:72], "big") == APPLICATION_ID
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        Store.open(tmp_path / "nowhere" / "runs.sqlite", write=True)


@pytest.mark.parametrize("has_artefacts", [True, False])
def test_any_byte_may_flip_and_what_is_read_is_what_was_recorded(has_artefacts, path, record, rows, tmp_path):
    artefacts = None if has_artefacts else {}
    _put(path, *(record(seed, artefacts=artefacts, detail={"worse_than_untrained": seed}) for seed in range(6)))
    whole, raw, chance = rows(path), path.read_bytes(), random.Random(0)
    flipped, refused = tmp_path / "flipped.sqlite", 0
    for _ in range(300):
        changed = bytearray(raw)
        changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        flipped.write_bytes(changed)
        try:
            with Store.open(flipped) as store:
                store.check_whole()
        except StoreError:
            refused += 1
        else:
            assert rows(flipped) == whole
    assert 50 < refused < 250


@pytest.mark.parametrize("bit", [0x01, 0x80], ids=["another letter", "no text"])
@pytest.mark.parametrize("what", [b"worse_than_untrained", b'"commit"', b'"task"'])
def test_a_flipped_letter_is_found_before_training_and_when_reading(what, bit, path, record):
    _put(path, *(record(seed, detail={"worse_than_untrained": seed}) for seed in range(6)))
    raw = bytearray(path.read_bytes())
    raw[raw.find(what) + 2] ^= bit
    path.write_bytes(raw)
    with pytest.raises(DamagedRunError, match=r"is damaged .*Restore it from a copy"):
        Store.open(path, write=True)
    with Store.open(path) as store, pytest.raises(DamagedRunError):
        store.check_whole()


@pytest.mark.parametrize("table", ["histories", "artefacts"])
def test_a_damaged_blob_names_its_run_and_leaves_the_others(table, path, record):
    _put(path, record(0), record(1))
    _sql(path, f"UPDATE {table} SET body = substr(body, 1, length(body) - 1) WHERE run = 2")
    with Store.open(path) as store:
        read = store.history if table == "histories" else store.artefacts
        assert read(record(0).run_id)
        with pytest.raises(
            DamagedRunError, match=rf"run {record(1).run_id} is damaged \(its checksum does not match\)"
        ):
            read(record(1).run_id)


def test_pages_that_do_not_hang_together_are_found_before_anything_is_written(path, tmp_path, record, snapshot):
    """A page of rubbish; and an index that lost a run, which by the table is there: it would be recorded twice."""
    _put(path, *(record(seed) for seed in range(9)))
    sound = path.read_bytes()
    with closing(sqlite3.connect(path)) as raw:
        roots = dict(raw.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
    page = 1024 * (roots["histories"] - 1)
    at = sound.find(record(0).run_id.encode(), (roots["sqlite_autoindex_runs_1"] - 1) * 1024)
    for start, rubbish in ((page, b"\xa5" * 1024), (at, b"\0")):
        path.write_bytes(sound[:start] + rubbish + sound[start + len(rubbish) :])
        before = snapshot(tmp_path)
        with pytest.raises(StoreError, match=r"damaged .*Restore it from a copy"):
            Store.open(path, write=True)
        with Store.open(path) as store, pytest.raises(StoreError, match=r"the file is damaged \("):
            store.check_whole()
        assert snapshot(tmp_path) == before


HOLD = """
    store = Store.open(sys.argv[1], write=True)
    store.put([record(0)])
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_writer_at_a_time_and_readers_meanwhile(path, start, record, tmp_path):
    holder = start(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError, match=r"is being written by another process\. Wait for it to end"):
        Store.open(path, write=True)
    with Store.open(path) as reader:
        assert len(reader.runs()) == 1
        reader.copy(tmp_path / "copy.sqlite")
    holder.kill()
    holder.wait()
    with Store.open(path, write=True) as store:
        assert store.put([record(1)]) == 1
        assert len(store.runs()) == 2
        with pytest.raises(StoreError, match="is being written by another process"):
            Store.open(path, write=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.sqlite", "runs.sqlite"]


def test_nothing_acknowledged_is_lost_to_kill_9(path, start):
    """Writers open and close too, so that kills also fall between a log and a plain file; two runs to a put."""
    script = """
        i = int(sys.argv[2])
        print("ready", flush=True)
        while True:
            with Store.open(sys.argv[1], write=True) as store:
                for _ in range(3):
                    store.put([record(i), record(i + 1)])
                    print(i, i + 1, flush=True)
                    i += 2
    """
    clock, acknowledged = random.Random(0), set[int]()
    for attempt in range(8):
        writer = start(script, path, 1000 * attempt)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(clock.uniform(0.0, 0.25))
        writer.kill()
        out, err = writer.communicate()
        assert err == ""
        # A line cut short by the kill has no line end, and was not acknowledged.
        acknowledged |= {int(seed) for line in out[: out.rfind("\n") + 1].splitlines() for seed in line.split()}
        if not acknowledged:
            continue
        with Store.open(path) as store:
            store.check_whole()
            ids = {run.seed: run.id for run in store.runs()}
            assert acknowledged <= ids.keys()
            assert all(seed ^ 1 in ids for seed in ids)
            for seed, run in ids.items():
                expected = np.random.default_rng(seed).standard_normal(40).astype(np.float32)
                assert store.history(run)["loss"].values.tobytes() == expected.tobytes()
    assert len(acknowledged) > 5, "on a busy machine few are written before the kill"


def test_a_put_is_in_the_file_itself_and_a_closed_store_is_one_file(path, record, tmp_path, snapshot):
    (tmp_path / "alone").mkdir()
    alone = tmp_path / "alone" / "runs.sqlite"
    with Store.open(path, write=True) as store:
        for seed in range(3):
            store.put([record(seed)])
            # Another process copies: opening the file in this one would drop the locks that SQLite holds on it.
            subprocess.run(["cp", path, alone], check=True)
            with Store.open(alone) as copied:
                assert [run.seed for run in copied.runs()] == list(range(seed + 1))
        with Store.open(path) as reader:  # which does not keep the writer from closing
            store.close()
            assert len(reader.runs()) == 3
    _put(path, record(3))
    before = snapshot(path.parent / "alone") | {path.name: path.read_bytes()}
    with Store.open(path) as store:
        assert len(store.runs()) == 4
    assert snapshot(path.parent / "alone") | {path.name: path.read_bytes()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "runs.sqlite"]


def test_a_store_that_was_moved_is_noticed(path, record):
    with Store.open(path, write=True) as store:
        store.put([record(0)])
        path.rename(path.with_name("moved.sqlite"))
        with pytest.raises(StoreError, match=r"was removed or moved while runs were trained; nothing more is recorded"):
            store.put([record(1)])


# Many small puts hit the limit in the file itself; one large put hits it in the log.
@pytest.mark.parametrize("points", [40, 20_000])
def test_a_full_disk_is_a_sentence_and_loses_nothing(points, path, finish, record):
    script = """
        import resource
        with Store.open(sys.argv[1], write=True) as store:
            store.put([record(i) for i in range(3)])
            print("ack 0 1 2", flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))
            for i in range(3, 10_000, 3):
                try:
                    store.put([record(i + k, points=int(sys.argv[2])) for k in range(3)])
                except StoreError as error:
                    print("error", error, flush=True)
                    break
                print("ack", i, i + 1, i + 2, flush=True)
            print("readable", len(store.runs()))
    """
    lines = finish(script, path, points).splitlines()
    (error,) = [line for line in lines if line.startswith("error")]
    assert str(path) in error
    assert "what was recorded before is safe" in error
    acknowledged = {int(seed) for line in lines if line.startswith("ack") for seed in line.split()[1:]}
    assert len(acknowledged) >= (60 if points == 40 else 3)
    with Store.open(path, write=True) as store:
        runs = store.runs()
        assert acknowledged <= {run.seed for run in runs}
        assert len(runs) % 3 == 0
        assert store.put([record(0)]) == 1


# For root no file is read-only, so root first becomes nobody, who may not be able to import.
OPEN_BOTH = """
    import urllib.parse
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with Store.open(sys.argv[1]) as store:
        (run,) = store.runs()
        print(run.seed, len(store.history(run.id)["loss"].values))
    try:
        Store.open(sys.argv[1], write=True)
    except StoreError as error:
        print(error)
"""


@pytest.fixture
def folder():
    """A folder that an ordinary user reaches; those of pytest are their owner's alone."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_read_only_store_is_read_and_not_written(is_killed, folder, finish):
    """Also one whose file says that it has a log, and there is none: the file was copied without it."""
    path = folder / "runs.sqlite"
    last = "os._exit(0)" if is_killed else "store.close()"
    finish(f"store = Store.open(sys.argv[1], write=True); store.put([record(7)]); {last}", path)
    for side in folder.iterdir():
        if side != path:
            side.unlink()
    assert path.read_bytes()[18] == (2 if is_killed else 1)
    folder.chmod(0o555)
    path.chmod(0o444)
    before = path.read_bytes()
    read, written = finish(OPEN_BOTH, path).splitlines()
    assert read == "7 40"
    assert str(path) in written
    assert "cannot be written" in written
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]
