"""Copies, compressed and lean ones, slices read as one store, and merges."""

import lzma
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing

import numpy as np
import pytest
from dst_lab.store import MergeReport, Record, Series, Store, StoreError, StoreWarning

RUNS = 40


def noisy(seed):
    """A run as long as the paper's: the low bits of its values are noise, the high ones are not."""
    draw = np.random.default_rng(seed)
    steps = np.arange(1, 101) * 390
    curves = {f"loss_{i}": Series(steps, (0.3 + 0.01 * draw.standard_normal(100)).astype(np.float32)) for i in range(6)}
    counts = {f"accuracy_{i}": Series(steps, (draw.integers(8800, 8900, 100) / 1e4).astype("f4")) for i in range(4)}
    return Record(
        config={"task": "t", "estimator": {"name": "soft"}, "seed": seed},
        status="done",
        history=curves | counts,
        artefacts={"picture": draw.integers(0, 255, 600, dtype=np.uint8)},
        provenance={"chunk": seed // 20},
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put(map(noisy, range(RUNS)))
    return path


@pytest.fixture(scope="module")
def small(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "runs.sqlite.xz"
    with Store.open(plain) as store:
        store.copy(path)
    return path


def _write(path, *records):
    with Store.open(path, write=True) as store:
        store.put(records)
    return path


def test_a_compressed_store_is_every_bit_of_it_and_smaller_than_its_blobs(plain, small, rows):
    assert rows(small) == rows(plain)
    with Store.open(plain) as one, Store.open(small) as two:
        assert [two.provenance(run.id) for run in two.runs()] == [one.provenance(run.id) for run in one.runs()]
        assert two.path == small
    with closing(sqlite3.connect(plain)) as raw:
        tables = ("histories", "artefacts")
        blobs = sum(raw.execute(f"SELECT sum(length(body)) FROM {name}").fetchone()[0] for name in tables)
    assert small.stat().st_size < 0.95 * blobs


def test_a_compressed_store_is_not_written(small, snapshot, tmp_path, monkeypatch):
    before = snapshot(small.parent)
    for path in (small, small.with_name("new.sqlite.xz")):
        with pytest.raises(StoreError, match=r"is compressed, and such a store is only read.*dst copy --store"):
            Store.open(path, write=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Store.open(small) as store, pytest.raises(StoreError, match="opened for reading"):
        store.put([noisy(0)])
    assert list(tmp_path.iterdir()) == [], "what was unpacked is gone"
    assert snapshot(small.parent) == before


def test_a_plain_store_is_made_of_a_compressed_one_as_small_as_before(plain, small, tmp_path, rows):
    with Store.open(small) as store:
        store.copy(tmp_path / "again.sqlite")
    with Store.open(tmp_path / "merged.sqlite", write=True) as store:
        assert store.merge(small).added == RUNS
    for name in ("again.sqlite", "merged.sqlite"):
        assert rows(tmp_path / name) == rows(plain)
        assert (tmp_path / name).stat().st_size < 1.1 * plain.stat().st_size
    with Store.open(tmp_path / "again.sqlite", write=True) as store:
        assert store.put([noisy(0), noisy(RUNS)]) == 1
        assert store.merge(small).already == RUNS


@pytest.mark.parametrize("name", ["lean.sqlite", "lean.sqlite.xz"])
def test_a_lean_copy_lacks_artefacts_and_a_merge_brings_them(name, plain, tmp_path, rows):
    whole = rows(plain)
    with Store.open(plain) as store:
        kept = store.runs()[7].id
        store.copy(tmp_path / name, artefacts_of=[kept])
    assert rows(tmp_path / name) == {
        run: one if run == kept else {**one, "artefacts": {}} for run, one in whole.items()
    }
    with Store.open(tmp_path / name) as store:
        store.check_whole()
        store.copy(tmp_path / "again.sqlite")
    with Store.open(tmp_path / "again.sqlite", write=True) as store:
        assert store.merge(tmp_path / name).differing == ()
        report = store.merge(plain)
        assert report == MergeReport(added=0, already=RUNS, replaced=0, differing=(), completed=RUNS - 1)
        assert store.merge(plain).completed == 0
    assert rows(tmp_path / "again.sqlite") == whole


def test_a_flipped_letter_in_a_lean_copy_is_found(tmp_path, record):
    with Store.open(_write(tmp_path / "a.sqlite", record(0, detail={"worse": 4.5}))) as store:
        store.copy(tmp_path / "lean.sqlite", artefacts_of=[])
    raw = (tmp_path / "lean.sqlite").read_bytes().replace(b'"worse":4.5', b'"worse":4.6')
    (tmp_path / "lean.sqlite").write_bytes(raw)
    with Store.open(tmp_path / "lean.sqlite") as store, pytest.raises(StoreError, match="fingerprint"):
        store.check_whole()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"not xz at all", "is damaged, or no store made by `dst copy`"),
        (lzma.compress(b"")[:-4], "is damaged, or no store made by `dst copy`"),
        (lzma.compress(b"something else, long enough to be looked at"), "not a dst store"),
        (lzma.compress(b""), "there is no store"),
        (None, "there is no store"),
        ("half", "is damaged"),
    ],
)
def test_what_is_no_compressed_store_is_refused(body, words, tmp_path, small):
    path = tmp_path / "a.sqlite.xz"
    if body is not None:
        path.write_bytes(small.read_bytes()[:-1000] if body == "half" else body)
    with pytest.raises(StoreError, match=words):
        Store.open(path)


def test_damage_is_not_copied_and_does_not_spread(plain, tmp_path):
    shutil.copy(plain, tmp_path / "damaged.sqlite")
    with closing(sqlite3.connect(tmp_path / "damaged.sqlite")) as raw, raw:
        raw.execute("UPDATE histories SET body = x'00112233' WHERE run = 5")
    words = r"damaged\.sqlite: the record of run [0-9a-f]{16} is damaged \(4 bytes"
    with Store.open(tmp_path / "damaged.sqlite") as store:
        for name in ("copy.sqlite", "copy.sqlite.xz"):
            with pytest.raises(StoreError, match=words):
                store.copy(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["damaged.sqlite"]
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        for other, expected in (("damaged.sqlite", words), ("gone.sqlite", "there is no store at .*gone")):
            with pytest.raises(StoreError, match=expected):
                store.merge(tmp_path / other)
        assert store.runs() == []


def test_a_copy_replaces_only_what_it_may(tmp_path, record, monkeypatch):
    target = tmp_path / "copy.sqlite"
    target.write_text("mine")
    with Store.open(_write(tmp_path / "runs.sqlite", record(0), record(1)), write=True) as store:
        with pytest.raises(StoreError, match=r"copy\.sqlite exists already"):
            store.copy(target)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda a, b: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(StoreError, match=r"copy\.sqlite could not be written \(No space left on device\)"):
                store.copy(target, overwrite=True)
        assert target.read_text() == "mine"
        (tmp_path / "copy.sqlite-wal").write_text("a log of what was there before")
        store.copy(target, overwrite=True)
        assert not (tmp_path / "copy.sqlite-wal").exists()
        with pytest.raises(StoreError, match="is the store itself"):
            store.copy(store.path, overwrite=True)
        with (
            Store.open(tmp_path / "busy.sqlite", write=True),
            pytest.raises(StoreError, match=r"busy\.sqlite is being written by another process"),
        ):
            store.copy(tmp_path / "busy.sqlite", overwrite=True)
        with pytest.raises(StoreError, match="nowhere does not exist"):
            store.copy(tmp_path / "nowhere" / "copy.sqlite")
    with Store.open(target, write=True) as copied:
        assert copied.put([record(1), record(2)]) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["busy.sqlite", "copy.sqlite", "runs.sqlite"]


@pytest.fixture
def folder(tmp_path, record):
    """Runs 0 and 1 compressed, then 1 and 3 with other results, and 2 and 4, in a plain file; run 3 failed before."""
    (tmp_path / "slices").mkdir()
    first = _write(tmp_path / "first.sqlite", record(0), record(1), record(3, status="failed"), record(4))
    with Store.open(first) as store:
        store.copy(tmp_path / "slices" / "0001.sqlite.xz")
    second = (record(1, shift=9.0), record(2), record(3, shift=9.0), record(4, status="failed", shift=9.0))
    _write(tmp_path / "slices" / "0002.sqlite", *second)
    (tmp_path / "slices" / "sessions.csv").write_text("not a store")
    return tmp_path / "slices"


@pytest.mark.filterwarnings("default::dst_lab.store.StoreWarning")
def test_slices_are_one_store_and_of_a_run_twice_the_first_counts(folder, record, rows, tmp_path):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    expected = {record(s).run_id: record(s, shift=9.0 * (s == 3)) for s in range(5)}
    with pytest.warns(StoreWarning) as caught:
        store = Store.open(folder)
    assert [str(one.message) for one in caught] == [
        f"{folder / '0002.sqlite'} has another result of run {record(1).run_id} than an earlier slice, which counts"
    ]
    with store:
        assert store.path == folder
        assert {run.id: run.status for run in store.runs()} == dict.fromkeys(expected, "done")
        for run, given in expected.items():
            assert store.history(run)["usage"].values.tobytes() == given.history["usage"].values.tobytes()
        store.copy(tmp_path / "runs.sqlite")
    with Store.open(tmp_path / "merged.sqlite", write=True) as store, pytest.warns(StoreWarning):
        assert store.merge(folder).added == 5
    with pytest.warns(StoreWarning):
        assert rows(folder) == rows(tmp_path / "runs.sqlite") == rows(tmp_path / "merged.sqlite")
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        assert store.put([record(5)]) == 1
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_folder_is_never_written_and_what_is_no_slice_is_named(folder, tmp_path):
    with pytest.raises(
        StoreError, match=r"is a folder of slices, and such .* only read.*dst copy --store slices runs.sqlite"
    ):
        Store.open(folder, write=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"no folder of slices either: it holds no \*.sqlite and no \*.sqlite.xz"):
        Store.open(tmp_path / "empty")
    (folder / "0001.sqlite.xz").write_bytes(b"\xfd7zXZ\0 and nothing more")
    with pytest.raises(StoreError, match=r"0001.sqlite.xz is damaged"):
        Store.open(folder)
    (folder / "0001.sqlite.xz").unlink()
    with Store.open(folder) as store:
        assert [one.seed for one in store.runs()] == [1, 2, 3, 4]


def test_overlapping_stores_agree_on_the_rules_of_put(tmp_path, record, rows):
    ours = [record(0), record(1, status="failed"), record(2), record(3, status="failed"), record(4)]
    theirs = [record(0), record(1), record(2, shift=1.0), record(3, status="failed"), record(4, status="failed")]
    target, other = _write(tmp_path / "a.sqlite", *ours), _write(tmp_path / "b.sqlite", *theirs, record(5))
    run, kept = record(2).run_id, rows(target)
    with Store.open(target, write=True) as store:
        assert store.merge(other) == MergeReport(added=1, already=4, replaced=1, differing=(run,))
        statuses = {one.seed: one.status for one in store.runs()}
        assert statuses == {**dict.fromkeys(range(6), "done"), 3: "failed"}
    assert rows(target)[run] == kept[run]
    with Store.open(target, write=True) as store:
        assert store.merge(other, prefer_other=True) == MergeReport(added=0, already=5, replaced=1, differing=())
    assert rows(target)[run] == rows(other)[run]
