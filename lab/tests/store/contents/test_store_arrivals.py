"""Networks on their way into a store: put in place with the records that they belong to, or not at all."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError, salvage
from dst_lab.store.contents import networks
from dst_lab.store.contents.networks import path_of, write
from dst_lab.store.contents.rows import StoredRow
from dst_lab.store.disk.connection import Connection

CONFIG = {"task": "t", "estimator": {"name": "decoupled", "tau_f": 1.0, "tau_b": 1.0}, "lr": 0.1}


def record(seed: int, value: float = 1.0, network: bool = True) -> Record:
    tensors = {"parameters/w": np.full(3, value, np.float32), "fixed/wiring": np.arange(seed + 2)}
    history = {"validation_loss": Series(np.array([1, 2]), np.array([2.0, value], np.float32))}
    return Record(config={**CONFIG, "seed": seed}, status="done", history=history, network=tensors if network else {})


@pytest.fixture
def kept(tmp_path) -> Path:
    path = tmp_path / "a.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(0), record(1), record(2, network=False)])
    return path


def ids(*seeds: int) -> list[str]:
    return [record(seed).run_id for seed in seeds]


def files(store: Path) -> dict[str, bytes]:
    """Every file in the folder of a store's networks, drafts among them."""
    folder = Path(f"{store}.networks")
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture
def other(tmp_path) -> Path:
    """Other results of the runs of `kept`, with other networks."""
    path = tmp_path / "other.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(0, value=7.0), record(1, value=7.0), record(2, value=7.0)])
    return path


def test_a_merge_that_fails_leaves_the_networks_as_they_were(kept, other) -> None:
    path_of(other, ids(2)[0]).write_bytes(b"nothing")
    before = files(kept)
    with Store.open(kept, write=True) as store:
        with pytest.raises(StoreError, match="is damaged"):
            store.merge(other, prefer_other=True)
        assert files(kept) == before
        assert all(store.network(run).run == run for run in ids(0, 1))


def test_what_cannot_be_recorded_leaves_the_networks_as_they_were(kept, monkeypatch) -> None:
    """A stopped run has a network. Trained whole, it would take its place, but the next one cannot be written."""
    run = record(5, value=3.0)
    with Store.open(kept, write=True) as store:
        store.put([replace(run, status="stopped")])
        path_of(kept, ids(6)[0]).mkdir()
        before = path_of(kept, run.run_id).read_bytes()
        with pytest.raises(StoreError, match=f"{ids(6)[0]}"):
            store.put([run, record(6)])
        assert path_of(kept, run.run_id).read_bytes() == before
        path_of(kept, ids(6)[0]).rmdir()
        store.put([run, record(6)])
        assert store.network(run.run_id).digest != before
        assert {name for name in files(kept) if name.startswith(".")} == set()


def test_a_stopped_run_that_is_trained_whole_does_not_keep_the_network_of_then(kept) -> None:
    run = record(5, network=False)
    with Store.open(kept, write=True) as store:
        store.put([replace(record(5, value=3.0), status="stopped")])
        store.put([run])
        assert store.kept() == set(ids(0, 1))


def test_a_copy_that_fails_leaves_the_networks_of_its_target_as_they_were(kept, other, tmp_path) -> None:
    with closing(sqlite3.connect(other)) as raw, raw:
        raw.execute("UPDATE histories SET body = zeroblob(20) WHERE run = 3")
    before = kept.read_bytes(), files(kept)
    with Store.open(other) as store, pytest.raises(StoreError, match="is damaged"):
        store.copy(kept, overwrite=True)
    assert (kept.read_bytes(), files(kept)) == before


def test_a_copy_over_another_store_leaves_no_network_of_that_one(kept, other, tmp_path) -> None:
    """Run 0 has another result and no network now, run 1 the same result, run 3 is not in the copy."""
    with Store.open(kept, write=True) as store:
        store.put([record(3)])
    with Store.open(tmp_path / "new.sqlite", write=True) as store:
        store.put([record(0, value=7.0, network=False), record(1, network=False)])
        (Path(f"{kept}.networks") / "mine.safetensors").write_bytes(b"of somebody else")
        store.copy(kept, overwrite=True)
    assert set(files(kept)) == {f"{ids(1)[0]}.safetensors", "mine.safetensors"}
    with Store.open(kept) as store:
        store.copy(tmp_path / "again.sqlite")
        store.copy(other, overwrite=True)
    with Store.open(other) as store:
        assert store.network(ids(1)[0]).run == ids(1)[0]


def test_a_salvage_that_fails_leaves_the_networks_of_its_target_as_they_were(kept, other, monkeypatch) -> None:
    before = kept.read_bytes(), files(kept)
    with monkeypatch.context() as patch:
        patch.setattr("dst_lab.store.transfer.salvage.insert_all", lambda *_: (_ for _ in ()).throw(StoreError("full")))
        with pytest.raises(StoreError, match="full"):
            salvage(other, kept, overwrite=True)
    assert (kept.read_bytes(), files(kept)) == before
    Path(f"{other}.networks").rename(f"{other}.elsewhere")
    salvage(other, kept, overwrite=True)
    assert files(kept) == {}


def test_a_copy_has_the_networks_of_the_runs_that_it_has(kept, tmp_path) -> None:
    """Another process records a run, with its network, just before the file is copied."""
    with Store.open(kept, write=True) as writer, Store.open(kept) as reader:
        reader._connection.set_trace_callback(lambda sql: writer.put([record(3)]) if "VACUUM" in sql else None)
        reader.copy(tmp_path / "b.sqlite")
    with Store.open(tmp_path / "b.sqlite") as copy:
        assert len(copy.runs()) == 4
        assert copy.kept() == set(ids(0, 1, 3))


@pytest.mark.parametrize("how", ["removed", "lost"])
def test_a_run_that_is_removed_while_it_is_copied_comes_without_its_network(how, kept, tmp_path, monkeypatch) -> None:
    """Between the listing of the networks and the reading of this one."""
    listed = networks.kept

    def removing(path: Path, runs: Iterable[str]) -> set[str]:
        found = listed(path, runs)
        if path == kept:
            monkeypatch.undo()
            if how == "lost":
                path_of(kept, ids(0)[0]).unlink()
            else:
                writer.remove(ids(0))
        return found

    with Store.open(kept, write=True) as writer, Store.open(kept) as reader:
        monkeypatch.setattr(networks, "kept", removing)
        if how == "lost":
            with pytest.raises(StoreError, match="is not there"):
                reader.copy(tmp_path / "b.sqlite")
            return
        reader.copy(tmp_path / "b.sqlite")
    with Store.open(tmp_path / "b.sqlite") as copy:
        assert len(copy.runs()) == 3
        assert copy.kept() == set(ids(1))


def test_a_merge_has_the_networks_of_the_runs_that_it_adds(kept, tmp_path, monkeypatch) -> None:
    listed = Store.verified_rows

    def verified_rows(self: Store) -> Iterator[StoredRow]:
        with Store.open(kept, write=True) as writer:
            writer.put([record(3)])
        yield from listed(self)

    monkeypatch.setattr(Store, "verified_rows", verified_rows)
    with Store.open(tmp_path / "b.sqlite", write=True) as store:
        assert store.merge(kept).added == 4
        assert store.kept() == set(ids(0, 1, 3))


@pytest.mark.parametrize("how", ["put", "merge", "remove"])
def test_an_interrupt_during_the_commit_leaves_records_and_networks_together(how, kept, other, monkeypatch) -> None:
    """Ctrl-C while SQLite waits for the disk: it is heard when the commit has been made."""
    execute = Connection.execute

    def interrupted(self: Connection, sql: str, *values: object) -> sqlite3.Cursor:
        writing = self.in_transaction and self is writer
        cursor = execute(self, sql, *values)
        if sql == "COMMIT" and writing:
            raise KeyboardInterrupt
        return cursor

    with Store.open(kept, write=True) as store:
        writer = store._connection
        monkeypatch.setattr(Connection, "execute", interrupted)
        act = {
            "put": lambda: store.put([record(3)]),
            "remove": lambda: store.remove(ids(1)),
            "merge": lambda: store.merge(other, prefer_other=True),
        }[how]
        with pytest.raises(KeyboardInterrupt):
            act()
        monkeypatch.undo()
        there = {"put": ids(0, 1, 3), "merge": ids(0, 1, 2), "remove": ids(0)}[how]
        assert store.kept() == {name.partition(".")[0] for name in files(kept)} == set(there)
        assert all(store.network(run).run == run for run in there)
        store.put([record(4)])


@pytest.mark.parametrize("how", ["copy", "salvage"])
@pytest.mark.parametrize("over", [False, True])
def test_an_interrupt_once_the_file_is_there_leaves_its_networks(how, over, kept, other, tmp_path, monkeypatch) -> None:
    target = kept if over else tmp_path / "new.sqlite"
    _interrupt_after(monkeypatch, target.name)
    with Store.open(other) as store, pytest.raises(KeyboardInterrupt):
        store.copy(target, overwrite=over) if how == "copy" else salvage(other, target, overwrite=over)
    monkeypatch.undo()
    with Store.open(target) as store:
        assert all(store.network(run).run == run for run in ids(0, 1, 2))
    assert len(files(target)) == 3


@pytest.mark.parametrize("how", ["copy", "merge", "salvage"])
def test_an_interrupt_before_the_records_are_there_leaves_no_network(how, kept, tmp_path, monkeypatch) -> None:
    target = tmp_path / "new.sqlite"
    Store.open(target, write=True).close()
    _interrupt_after(monkeypatch, f"{ids(1)[0]}.safetensors")
    if how == "merge":
        with Store.open(target, write=True) as store, pytest.raises(KeyboardInterrupt):
            store.merge(kept)
    else:
        with Store.open(kept) as store, pytest.raises(KeyboardInterrupt):
            store.copy(target, overwrite=True) if how == "copy" else salvage(kept, target, overwrite=True)
    assert not Path(f"{target}.networks").exists()


def _interrupt_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Ctrl-C while the system waits for the disk, with a file of this name just in its place."""
    replace_file = os.replace

    def interrupted(part: Path, target: Path) -> None:
        replace_file(part, target)
        if target.name == name:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)


def test_a_network_that_a_killed_process_left_is_not_taken_for_that_of_another_result(kept, other, tmp_path) -> None:
    """Killed with the network in its place and the record not yet written, or the other way round."""
    new = tmp_path / "new.sqlite"
    for how in ("put", "merge"):
        with Store.open(kept) as store, Store.open(new, write=True) as left:
            write(new, store.network(ids(0)[0]))
            left.put([record(0, value=7.0, network=False)]) if how == "put" else left.merge(_lean(other))
            assert left.kept() == set()
            left.copy(tmp_path / f"{how}.sqlite")
            left.remove([run.id for run in left.runs()])
    with Store.open(kept) as store, Store.open(other, write=True) as theirs:
        write(other, store.network(ids(0)[0]))
        assert theirs.merge(_lean(other)).already == 3
        with pytest.raises(StoreError, match="of another training"):
            theirs.network(ids(0)[0])
    with Store.open(tmp_path / "source.sqlite", write=True) as source:
        source.put([record(0, value=7.0)])
    with Store.open(other, write=True) as theirs:
        theirs.merge(tmp_path / "source.sqlite")
        assert theirs.network(ids(0)[0]).tensors["parameters/w"][0] == 7.0


def test_a_network_of_the_same_result_stays_where_the_record_comes_later(kept, tmp_path) -> None:
    new = tmp_path / "new.sqlite"
    with Store.open(kept) as store, Store.open(new, write=True) as left:
        write(new, store.network(ids(0)[0]))
        left.put([record(0, network=False)])
        assert left.network(ids(0)[0]).run == ids(0)[0]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["remove", "put", "merge"])
def test_what_a_killed_process_left_goes_when_the_store_is_opened_again(how, when, kept, other) -> None:
    """Killed just before its commit, or just after: each record has its own network, and no other file is there."""
    stray = path_of(kept, "0" * 16)
    stray.write_bytes(b"of a store that is to be put back")
    act = {
        "remove": "store.remove(sys.argv[4:6])",
        "put": "store.put([Record(config=CONFIG, status='done', network={'w': np.ones(2)})])",
        "merge": "store.merge(sys.argv[2], prefer_other=True)",
    }[how]
    ended = subprocess.run(
        [sys.executable, "-c", KILLED.replace("ACT", act), kept, other, when, *ids(0, 1)], capture_output=True
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, b"")
    with Store.open(kept) as store:
        before = files(kept)
        assert len(store.runs()) == {("remove", "after"): 1, ("put", "after"): 4}.get((how, when), 3)
    assert files(kept) == before, "who reads changes nothing"
    Store.open(kept, write=True).close()
    with Store.open(kept) as store:
        there = {("remove", "after"): [], ("merge", "after"): ids(0, 1, 2)}.get((how, when), ids(0, 1))
        there += [run.id for run in store.runs() if run.seed == 9]
        assert {*files(kept)} == {path_of(kept, run).name for run in there} | {stray.name}
        assert all(store.network(run).run == run for run in there)


@pytest.mark.parametrize("whose", ["of another machine", "whose number another process has now"])
def test_it_is_found_whoever_the_killed_process_was(whose, kept, other, monkeypatch) -> None:
    """On a node of a cluster, or in a container, where the next process has the same number."""
    act = "store.merge(sys.argv[2], prefer_other=True)"
    subprocess.run([sys.executable, "-c", KILLED.replace("ACT", act), kept, other, "after"], capture_output=True)
    parts = [path for path in path_of(kept, "").parent.iterdir() if path.suffix == ".part"]
    assert parts
    for part in parts:
        start, _, end = part.name.partition(".safetensors.")
        pid, _, rest = end.partition(".")
        changed = f"{pid}.abcdef{rest[6:]}" if whose == "of another machine" else f"{os.getpid()}.{rest}"
        part.rename(part.with_name(f"{start}.safetensors.{changed}"))
    Store.open(kept, write=True).close()
    with Store.open(kept) as store:
        assert [store.network(run).run for run in ids(0, 1, 2)] == ids(0, 1, 2)
    assert {*files(kept)} == {path_of(kept, run).name for run in ids(0, 1, 2)}


KILLED = """
import os, signal, sys
import numpy as np
from dst_lab.store import Record, Store
from dst_lab.store.disk.connection import Connection

CONFIG = {"task": "t", "estimator": {"name": "decoupled", "tau_f": 1.0, "tau_b": 1.0}, "lr": 0.1, "seed": 9}
execute = Connection.execute

def killed(self, sql, *values):
    if sql == "COMMIT" and self is store._connection:
        sys.argv[3] == "after" and execute(self, sql, *values)
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(self, sql, *values)

with Store.open(sys.argv[1], write=True) as store:
    Connection.execute = killed
    ACT
"""


def _lean(path: Path) -> Path:
    """The file alone, as a store without networks."""
    alone = path.with_name("alone.sqlite")
    alone.write_bytes(path.read_bytes())
    return alone
