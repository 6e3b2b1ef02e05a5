"""One writer at a time, by the kernel's lock or, where there is none, by a file that names its process."""

import errno
import fcntl
import json
import os
import re
import socket

import pytest
from dst_lab.store import Store, StoreError

HOLD = """
    with Store.open(sys.argv[1], write=True) as store:
        store.put([record(0)])
        print("held", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.sqlite"


def _names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_second_writer_is_told_which_process_on_which_host(path, start):
    holder = start(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    expected = f"is being written by process {holder.pid} on host {re.escape(socket.gethostname())} since 20"
    with pytest.raises(StoreError, match=expected):
        Store.open(path, write=True)
    with Store.open(path) as reader:
        assert len(reader.runs()) == 1


def test_the_lock_of_a_killed_process_is_taken_over(path, start, record, tmp_path):
    holder = start(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    assert f'"pid": {holder.pid}' in (tmp_path / "runs.sqlite.lock").read_text()
    with Store.open(path, write=True) as store:
        assert json.loads((tmp_path / "runs.sqlite.lock").read_text())["pid"] == os.getpid()
        assert store.put([record(1)]) == 1
        assert len(store.runs()) == 2
    assert _names(tmp_path) == ["runs.sqlite"]


def test_a_second_writer_in_the_same_process_is_refused_too(path, record):
    with Store.open(path, write=True) as store:
        with pytest.raises(StoreError, match=f"process {os.getpid()} "):
            Store.open(path, write=True)
        assert store.put([record(0)]) == 1
    with Store.open(path, write=True) as store:
        assert store.put([record(1)]) == 1


def test_a_lock_file_removed_while_it_was_being_taken_is_made_again(path, tmp_path, monkeypatch):
    """A writer that leaves removes its lock file; one that had it open by then would hold a file without a name."""
    take, calls = fcntl.flock, []

    def late(descriptor, how):
        if not calls:
            (tmp_path / "runs.sqlite.lock").unlink()
        calls.append(how)
        take(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with Store.open(path, write=True):
        assert json.loads((tmp_path / "runs.sqlite.lock").read_text())["pid"] == os.getpid()
        with pytest.raises(StoreError, match=f"process {os.getpid()} "):
            Store.open(path, write=True)


def test_a_forked_worker_does_not_keep_the_lock_of_its_dead_parent(path, start, record):
    script = """
        store = Store.open(sys.argv[1], write=True)
        if os.fork() == 0:
            print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    """
    parent = start(script, path)
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(StoreError, match=f"process {parent.pid} "):
            Store.open(path, write=True)
        parent.kill()
        parent.wait()
        with Store.open(path, write=True) as store:
            assert store.put([record(0)]) == 1
    finally:
        os.kill(child, 9)


def test_a_failed_opening_lets_go_of_the_lock(path, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr("dst_lab.store.store.connect_writer", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Store.open(path, write=True)
    assert _names(tmp_path) == ["runs.sqlite"]
    Store.open(path, write=True).close()


@pytest.fixture(params=["refused by the file system", "no fcntl"])
def without_flock(request, monkeypatch):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    if request.param == "no fcntl":
        monkeypatch.setattr("dst_lab.store.disk.lock.fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", refuse)


def _sign(folder, pid, host):
    (folder / "runs.sqlite.lock.pid").write_text(json.dumps({"pid": pid, "host": host, "since": "2024"}))


@pytest.mark.usefixtures("without_flock")
class TestWithoutFlock:
    def test_the_file_is_the_lock(self, path, record, tmp_path):
        with Store.open(path, write=True) as store:
            with pytest.raises(StoreError, match=f"process {os.getpid()} on host"):
                Store.open(path, write=True)
            assert store.put([record(0)]) == 1
            assert _names(tmp_path) == ["runs.sqlite", "runs.sqlite-shm", "runs.sqlite-wal", "runs.sqlite.lock.pid"]
        assert _names(tmp_path) == ["runs.sqlite"]
        Store.open(path, write=True).close()

    def test_a_dead_process_of_this_host_loses_it(self, path, finish, tmp_path):
        dead = int(finish("print(os.getpid())"))
        _sign(tmp_path, dead, socket.gethostname())
        with Store.open(path, write=True):
            assert json.loads((tmp_path / "runs.sqlite.lock.pid").read_text())["pid"] == os.getpid()
        assert _names(tmp_path) == ["runs.sqlite"]

    def test_a_living_process_of_this_host_keeps_it(self, path, tmp_path):
        _sign(tmp_path, os.getppid(), socket.gethostname())
        with pytest.raises(StoreError, match=f"process {os.getppid()} "):
            Store.open(path, write=True)
        assert _names(tmp_path) == ["runs.sqlite.lock.pid"]

    def test_a_process_of_another_host_keeps_it(self, path, tmp_path, finish):
        dead = int(finish("print(os.getpid())"))
        _sign(tmp_path, dead, "elsewhere")
        with pytest.raises(StoreError, match=rf"process {dead} on host elsewhere since 2024.*remove .*lock\.pid"):
            Store.open(path, write=True)

    def test_an_unsigned_lock_is_not_guessed_at(self, path, tmp_path):
        (tmp_path / "runs.sqlite.lock.pid").touch()
        with pytest.raises(StoreError, match=r"did not sign its lock.*remove .*lock\.pid"):
            Store.open(path, write=True)
