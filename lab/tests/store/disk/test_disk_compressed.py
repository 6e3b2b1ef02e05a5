"""A store in one compressed file: the same runs, read as it is, and nothing else."""

import lzma
import sqlite3
import tempfile
from contextlib import closing

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError

RUNS = 60


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


def test_every_bit_of_it_is_there(plain, small, rows):
    assert rows(small) == rows(plain)
    with Store.open(plain) as one, Store.open(small) as two:
        assert [two.provenance(run.id) for run in two.runs()] == [one.provenance(run.id) for run in one.runs()]
        assert two.path == small


def test_it_is_smaller_than_its_blobs(plain, small):
    with closing(sqlite3.connect(plain)) as raw:
        tables = ("histories", "artefacts")
        blobs = sum(raw.execute(f"SELECT sum(length(body)) FROM {name}").fetchone()[0] for name in tables)
    assert small.stat().st_size < 0.95 * blobs


def test_it_is_not_written(small, snapshot):
    before = snapshot(small.parent)
    with pytest.raises(StoreError, match=r"is compressed, and such a store is only read.*dst copy --store runs"):
        Store.open(small, write=True)
    with pytest.raises(StoreError, match="is compressed"):
        Store.open(small.with_name("new.sqlite.xz"), write=True)
    with Store.open(small) as store, pytest.raises(StoreError, match="opened for reading"):
        store.put([noisy(0)])
    assert snapshot(small.parent) == before


def test_what_was_unpacked_goes_when_it_is_closed(small, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Store.open(small) as store:
        assert len(store.runs()) == RUNS
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_a_plain_store_is_made_of_it_again(plain, small, tmp_path, rows):
    with Store.open(small) as store:
        store.copy(tmp_path / "again.sqlite")
    with Store.open(tmp_path / "again.sqlite", write=True) as store:
        assert store.put([noisy(0), noisy(RUNS)]) == 1
        assert store.merge(small).already == RUNS
    assert {**rows(tmp_path / "again.sqlite"), **rows(plain)} == rows(tmp_path / "again.sqlite")
    assert (tmp_path / "again.sqlite").stat().st_size < 1.1 * plain.stat().st_size


def test_what_is_merged_from_it_is_as_small_as_elsewhere(plain, small, tmp_path, rows):
    with Store.open(tmp_path / "new.sqlite", write=True) as store:
        assert store.merge(small).added == RUNS
    assert rows(tmp_path / "new.sqlite") == rows(plain)
    assert (tmp_path / "new.sqlite").stat().st_size < 1.1 * plain.stat().st_size


def test_artefacts_are_left_out_of_all_but_these_runs(plain, tmp_path, rows):
    with Store.open(plain) as store:
        kept = store.runs()[7].id
        for name in ("lean.sqlite", "lean.sqlite.xz"):
            store.copy(tmp_path / name, artefacts_of=[kept])
    whole = rows(plain)
    for name in ("lean.sqlite", "lean.sqlite.xz"):
        found = rows(tmp_path / name)
        assert found[kept] == whole[kept]
        assert found == {run: one if run == kept else {**one, "artefacts": {}} for run, one in whole.items()}
    with Store.open(tmp_path / "lean.sqlite", write=True) as store:
        assert store.merge(tmp_path / "lean.sqlite.xz").differing == ()
    assert rows(tmp_path / "lean.sqlite") == rows(tmp_path / "lean.sqlite.xz")


def test_a_merge_brings_the_artefacts_that_a_lean_store_left_out(plain, tmp_path, rows):
    with Store.open(plain) as store:
        kept = store.runs()[7].id
        store.copy(tmp_path / "lean.sqlite", artefacts_of=[kept])
    with Store.open(tmp_path / "lean.sqlite", write=True) as store:
        report = store.merge(plain)
        assert report.differing == (), "what is left out says nothing against what is there"
        assert (report.added, report.already, report.completed) == (0, RUNS, RUNS - 1)
        assert store.merge(plain).completed == 0
        assert store.artefacts(kept).keys() == {"picture"}
    assert rows(tmp_path / "lean.sqlite") == rows(plain)


@pytest.mark.parametrize("body", [b"", b"SQLite format 3\0", b"not xz at all", lzma.compress(b"")[:-4]])
def test_what_is_no_compressed_store_is_refused(body, tmp_path):
    (tmp_path / "a.sqlite.xz").write_bytes(body)
    with pytest.raises(StoreError, match=r"a\.sqlite\.xz is damaged, or no store made by `dst copy`"):
        Store.open(tmp_path / "a.sqlite.xz")


def test_a_compressed_file_of_something_else_is_refused(tmp_path, small):
    (tmp_path / "a.sqlite.xz").write_bytes(lzma.compress(b"something else, long enough to be looked at"))
    with pytest.raises(StoreError, match="is not a dst store"):
        Store.open(tmp_path / "a.sqlite.xz")
    (tmp_path / "b.sqlite.xz").write_bytes(lzma.compress(b""))
    with pytest.raises(StoreError, match="holds no store"):
        Store.open(tmp_path / "b.sqlite.xz")
    (tmp_path / "c.sqlite.xz").write_bytes(small.read_bytes()[:-1000])
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(tmp_path / "c.sqlite.xz")
    with pytest.raises(StoreError, match="there is no store"):
        Store.open(tmp_path / "d.sqlite.xz")


def test_a_damaged_run_is_named_and_nothing_is_left(plain, tmp_path):
    with Store.open(plain) as store:
        store.copy(tmp_path / "damaged.sqlite")
    with closing(sqlite3.connect(tmp_path / "damaged.sqlite")) as raw:
        raw.execute("UPDATE histories SET body = x'00112233' WHERE run = 5")
        raw.commit()
    with (
        Store.open(tmp_path / "damaged.sqlite") as store,
        pytest.raises(StoreError, match=r"damaged\.sqlite: the file is damaged \(malformed: run [0-9a-f]{16}: 4 bytes"),
    ):
        store.copy(tmp_path / "copy.sqlite.xz")
    assert [file.name for file in tmp_path.iterdir()] == ["damaged.sqlite"]
