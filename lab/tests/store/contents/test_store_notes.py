"""Notes on runs: written, replaced, removed, and carried wherever the runs go."""

import csv
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dst_lab.store import MergeReport, Store, StoreError, export, export_tensorboard, salvage, summarise


@pytest.fixture
def ids(record) -> list[str]:
    return [record(seed).run_id for seed in range(4)]


@pytest.fixture
def path(tmp_path, record, ids) -> Path:
    """Four runs, the first two with a note."""
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(seed) for seed in range(4)])
        store.note(ids[:1], "  the disk was full, = see the log\n")
        store.note([ids[1]], "with\ntwo lines")
    return path


def notes(path: Path) -> dict[str, str]:
    with Store.open(path) as store:
        return store.notes()


def test_a_note_is_put_replaced_and_removed(path, ids):
    assert notes(path) == {ids[0]: "the disk was full, = see the log", ids[1]: "with\ntwo lines"}
    with Store.open(path, write=True) as store:
        store.note(ids[1:3], "both")
        store.note(ids[:1], "")
        with pytest.raises(StoreError, match="holds no run 'none'"):
            store.note([ids[0], "none"], "never")
    assert notes(path) == {ids[1]: "both", ids[2]: "both"}
    with Store.open(path) as store, pytest.raises(StoreError, match="opened for reading"):
        store.note(ids[:1], "never")


def test_a_store_without_notes_is_as_it_was(tmp_path, record):
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        store.put([record(0)])
        assert store.notes() == {}
        store.note([], "on nothing")
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as raw:
        assert {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} == {
            "provenance", "runs", "histories", "artefacts", "bare_fingerprints",
        }  # fmt: skip


@pytest.mark.parametrize("name", ["copy.sqlite", "copy.sqlite.xz"])
def test_copies_and_slices_carry_them(name, path, tmp_path, record):
    expected = notes(path)
    folder = tmp_path / "slices"
    folder.mkdir()
    with Store.open(path) as store:
        store.copy(folder / name)
    assert notes(folder / name) == expected
    with Store.open(folder / "other.sqlite", write=True) as store:
        store.put([record(7)])
        store.note([record(7).run_id], "of another slice")
    assert notes(folder) == {**expected, record(7).run_id: "of another slice"}


def test_a_merge_adds_them_and_keeps_its_own(path, tmp_path, record, ids):
    other = tmp_path / "other.sqlite"
    with Store.open(other, write=True) as store:
        store.put([record(seed) for seed in (1, 2, 9)])
        store.note([ids[1]], "otherwise")
        store.note([ids[2], record(9).run_id], "new")
    with Store.open(path, write=True) as store:
        assert store.merge(other) == MergeReport(1, 2, 0, (), notes=(ids[1],), new_notes=2)
        assert store.notes()[ids[1]] == "with\ntwo lines"
        assert store.notes()[ids[2]] == store.notes()[record(9).run_id] == "new"
        assert (again := store.merge(other)).notes == (ids[1],)
        assert again.new_notes == 0
        store.merge(other, prefer_other=True)
        assert store.notes()[ids[1]] == "otherwise"
        assert store.merge(other).notes == ()


def test_a_run_that_is_removed_takes_its_note_along(path, ids):
    with Store.open(path, write=True) as store:
        store.remove(ids[:1])
        assert list(store.notes()) == [ids[1]]


def test_a_salvage_brings_out_those_that_are_whole(path, tmp_path, ids):
    raw = bytearray(path.read_bytes())
    at = raw.index(b"two lines")
    raw[at : at + 3] = b"six"
    harmed = tmp_path / "harmed.sqlite"
    harmed.write_bytes(raw)
    assert notes(harmed)[ids[1]] == "with\nsix lines (damaged)"
    for use in (
        lambda store: store.check_whole(), lambda store: store.copy(tmp_path / "copy.sqlite"),
        lambda store: list(store.verified_rows()),
    ):  # fmt: skip
        with Store.open(harmed) as store, pytest.raises(StoreError, match=f"the note on run {ids[1]}"):
            use(store)
    with Store.open(tmp_path / "good.sqlite", write=True) as store, pytest.raises(StoreError, match="the note on run"):
        store.merge(harmed, prefer_other=True)
    saved = salvage(harmed, tmp_path / "out.sqlite")
    assert saved.saved == 4
    ((name, why),) = saved.lost.items()
    assert name.startswith("the note on ")
    assert name.endswith(f"({ids[1]})")
    assert why == "it is damaged, and reads 'with\\nsix lines'"
    assert notes(tmp_path / "out.sqlite") == {ids[0]: "the disk was full, = see the log"}


@pytest.mark.parametrize("part", ["text", "id"])
def test_a_salvage_names_a_note_that_is_no_text_any_more_or_on_no_run(path, tmp_path, ids, part):
    raw = bytearray(path.read_bytes())
    at = raw.index(b"two lines")
    raw[at if part == "text" else raw.rindex(ids[1].encode(), 0, at) + 3] ^= 0x80 if part == "text" else 1
    harmed = tmp_path / "harmed.sqlite"
    harmed.write_bytes(raw)
    ((name, why),) = salvage(harmed, tmp_path / "out.sqlite").lost.items()
    assert name.startswith("the note on " if part == "text" else "a note on no run that is known (")
    assert why == f"it is damaged, and reads 'with\\n{'?wo' if part == 'text' else 'two'} lines'"


def test_exports_and_tables_have_them(path, tmp_path, ids):
    with Store.open(path) as store:
        export(store, "csv", tmp_path / "rows.csv")
        export(store, "parquet", tmp_path / "rows.parquet")
        export_tensorboard(store, tmp_path / "board")
        (row,) = summarise(store, metric="valid_loss", group=["task"])
    assert row["notes"] == notes(path)
    with (tmp_path / "rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0])[-1] == "note"
    expected = {ids[0]: "the disk was full, = see the log", ids[1]: "with\ntwo lines", ids[2]: "", ids[3]: ""}
    assert {row["run"]: row["note"] for row in table} == expected
    parquet = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "rows.parquet").to_pydict()
    assert {run: note or "" for run, note in zip(parquet["run"], parquet["note"], strict=True)} == expected
    texts = [file.read_text() for file in (tmp_path / "board").rglob("note.txt")]
    assert sorted(texts) == ["the disk was full, = see the log\n", "with\ntwo lines\n"]
    with Store.open(path, write=True) as store:
        store.note(ids, "")
        export_tensorboard(store, tmp_path / "board")
        export(store, "csv", tmp_path / "rows.csv")
    assert not list((tmp_path / "board").rglob("note.txt"))
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].endswith("status,lr")
