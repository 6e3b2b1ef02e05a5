"""A disk that takes no more, or that may not be written: a sentence, and what was recorded before is readable."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from dst_lab.store import Store, StoreError
from dst_lab.store.disk import connection

resource = pytest.importorskip("resource", reason="limits on file sizes are POSIX")

FILL = """
    import resource
    with Store.open(sys.argv[1], write=True) as store:
        store.put([record(i) for i in range(3)])
        print("ack 0 1 2", flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        for i in range(3, 10_000, 3):
            try:
                store.put([record(i + k, points=int(sys.argv[3])) for k in range(3)])
            except StoreError as error:
                print("error", error, flush=True)
                break
            print("ack", i, i + 1, i + 2, flush=True)
        print("readable", len(store.runs()))
"""


# Many small puts hit the limit in the file itself; one large put hits it in the log.
@pytest.mark.parametrize("points", [40, 20_000])
def test_a_full_disk_is_a_sentence_and_loses_nothing(points, tmp_path, finish, record):
    path = tmp_path / "runs.sqlite"
    told = finish(FILL, path, 120_000, points).splitlines()
    (error,) = [line for line in told if line.startswith("error")]
    assert str(path) in error
    assert "what was recorded before is safe" in error
    acknowledged = {int(seed) for line in told if line.startswith("ack") for seed in line.split()[1:]}
    assert len(acknowledged) >= (60 if points == 40 else 3)
    with Store.open(path, write=True) as store:
        runs = store.runs()
        assert acknowledged <= {run.seed for run in runs}
        assert len(runs) % 3 == 0
        assert all(store.history(run.id)["loss"].steps.size for run in runs)
        assert store.put([record(0)]) == 1


def test_a_store_that_cannot_even_begin_leaves_nothing(tmp_path, finish):
    script = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        try:
            Store.open(sys.argv[1], write=True)
        except StoreError as error:
            print(error)
    """
    assert "the disk refused to read or write" in finish(script, tmp_path / "runs.sqlite")
    assert list(tmp_path.iterdir()) == []


# For root no file is read-only, so root first becomes nobody, who may not be able to import: what is imported late
# (urllib, for as_uri) comes before.
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
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("locked", ["folder", "file"])
def test_a_read_only_store_is_read_and_not_written(killed, locked, folder, finish, snapshot):
    path = folder / "runs.sqlite"
    last = "os._exit(0)" if killed else "store.close()"
    finish(f"store = Store.open(sys.argv[1], write=True); store.put([record(7)]); {last}", path)
    for side in folder.iterdir():
        if side != path:
            side.unlink()
    # The file says that it has a log, and there is none: what is left of a store when the file alone is copied.
    assert path.read_bytes()[18] == (2 if killed else 1)
    if locked == "folder":
        folder.chmod(0o555)
    else:
        folder.chmod(0o777)
    path.chmod(0o444)
    before = path.read_bytes()
    read, written = finish(OPEN_BOTH, path).splitlines()
    assert read == "7 40"
    assert str(path) in written
    assert "cannot be written" in written
    assert "what was recorded before is safe" in written
    assert path.read_bytes() == before
    if locked == "folder":
        assert list(snapshot(folder)) == ["runs.sqlite"]


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder that not even root can write")
def test_a_folder_that_takes_no_files_is_named():
    with pytest.raises(StoreError, match=r"/sys/kernel/runs.sqlite cannot be written: the lock .* could not be made"):
        Store.open("/sys/kernel/runs.sqlite", write=True)


def test_a_file_that_sqlite_may_only_read_is_found_at_opening(tmp_path, record, monkeypatch, snapshot):
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(0)])
    before = snapshot(tmp_path)
    honest = connection._connect
    monkeypatch.setattr(connection, "_connect", lambda path, query: honest(path, "mode=ro"))
    with pytest.raises(StoreError, match=r"cannot be written \(attempt to write a readonly database\)"):
        Store.open(path, write=True)
    assert snapshot(tmp_path) == before
