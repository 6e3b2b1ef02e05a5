"""A damaged store: its healthy runs come out, the others are named, and nothing spreads the damage."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError, salvage
from dst_lab.store.disk import connection
from dst_lab.store.disk.pages import cells

PAGE = 1024


@pytest.fixture
def path(tmp_path, record) -> Path:
    """Forty runs, some with histories of many pages, and beside them what is left of five that failed at first."""
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(seed, status="failed", detail={"reason": "x" * 300}) for seed in range(5)])
        store.put([record(seed, provenance={"commit": f"c{seed % 3}"}) for seed in range(38)])
        store.put([long_record(seed) for seed in (38, 39)])
    return path


def long_record(seed: int, steps: int = 3000) -> Record:
    values = np.random.default_rng(seed).standard_normal(steps)
    config = {"task": "own", "estimator": {"name": "soft", "tau": 1.0}, "seed": seed, "lr": 0.1}
    return Record(config=config, status="done", history={"valid_loss": Series(np.arange(steps), values)})


def root(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as raw:
        ((page,),) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    return int(page)


def harmed(path: Path, start: int, length: int, content: bytes | None = None) -> Path:
    raw = bytearray(path.read_bytes())
    raw[start : start + length] = content if content is not None else b"\xa5" * length
    other = path.with_name("harmed.sqlite")
    other.write_bytes(raw)
    return other


def test_a_healthy_store_comes_out_whole(path, rows, tmp_path):
    found = salvage(path, tmp_path / "out.sqlite")
    assert (found.saved, dict(found.lost)) == (40, {})
    assert rows(tmp_path / "out.sqlite") == rows(path)
    with Store.open(path) as store, Store.open(tmp_path / "out.sqlite") as out:
        assert [run.id for run in out.runs()] == [run.id for run in store.runs()], "in the order they were recorded"
        assert {out.provenance(run.id)["commit"] for run in out.runs() if run.seed < 38} == {"c0", "c1", "c2"}


@pytest.mark.parametrize("table", ["runs", "histories", "artefacts", "provenance", "sqlite_autoindex_runs_1"])
def test_a_destroyed_root_page_hides_no_run(table, path, rows, tmp_path):
    """Roots of these tables are inner pages, but for provenance, whose three rows are on it."""
    at = (root(path, table) - 1) * PAGE
    damaged = harmed(path, at, PAGE)
    found = salvage(damaged, tmp_path / "out.sqlite")
    whole, saved = rows(path), rows(tmp_path / "out.sqlite")
    assert {run: whole[run] for run in saved} == saved
    assert len(saved) == found.saved == 40
    if table == "provenance":
        assert set(found.lost.values()) == {"where and when it was trained cannot be read"}
        assert all(name.endswith("), without its provenance") for name in found.lost)
        with Store.open(tmp_path / "out.sqlite") as out:
            out.check_whole()
            assert all(set(out.provenance(run.id)) == {"lost"} for run in out.runs())


def test_a_destroyed_head_or_a_cut_end_costs_only_what_lay_there(path, rows, tmp_path):
    whole = rows(path)
    headless = harmed(path, 0, PAGE)
    with pytest.raises(StoreError, match="not a dst store"):
        Store.open(headless)
    assert salvage(headless, tmp_path / "one.sqlite").saved == 40
    short = path.with_name("short.sqlite")
    short.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(StoreError, match=r"cut short.*dst copy --store FILE --salvage TARGET"):
        Store.open(short)
    found = salvage(short, tmp_path / "two.sqlite")
    saved = rows(tmp_path / "two.sqlite")
    assert 10 < found.saved < 40
    assert {run: whole[run] for run in saved} == saved
    assert len(found.lost) >= 1


def test_any_byte_may_flip_and_what_comes_out_is_as_it_was(path, rows, tmp_path):
    whole = rows(path)
    size, chance = path.stat().st_size, random.Random(0)
    for trial in range(25):
        raw = bytearray(path.read_bytes())
        for _ in range(1 + trial):
            raw[chance.randrange(size)] ^= 1 << chance.randrange(8)
        harmed = tmp_path / "harmed"
        harmed.write_bytes(raw)
        found = salvage(harmed, tmp_path / "out.sqlite", overwrite=True)
        saved = rows(tmp_path / "out.sqlite")
        assert found.saved == len(saved) >= 40 - 4 * (1 + trial)
        for run, content in saved.items():
            bare = content["artefacts"] == {} and found.bare
            assert content == ({**whole[run], "artefacts": {}} if bare else whole[run])
        assert len(saved) == 40 or found.lost


def test_the_lost_are_named_and_a_run_without_its_artefacts_too(path, record, tmp_path):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE histories SET body = zeroblob(20) WHERE run = (SELECT key FROM runs WHERE seed = 7)")
        raw.execute("UPDATE artefacts SET body = zeroblob(20) WHERE run = (SELECT key FROM runs WHERE seed = 8)")
        raw.execute("PRAGMA ignore_check_constraints=ON")
        raw.execute("UPDATE runs SET status = 'none' WHERE seed = 9")
        raw.commit()
        raw.execute("UPDATE runs SET detail = zeroblob(2) WHERE seed = 10")
        raw.commit()
    found = salvage(path, tmp_path / "out.sqlite")
    assert (found.saved, found.bare) == (37, 1)
    told = dict(found.lost)
    zeros = "it begins with b'\\x00\\x00\\x00', not b'dst'"
    assert told == {
        f"stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=7 ({record(7).run_id})": zeros,
        f"stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=8 ({record(8).run_id}), without its artefacts": zeros,
        f"stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=9 ({record(9).run_id})": "its status is 'none'",
        f"stochastic-binary decoupled tau_b=0.7 tau_f=0.1 seed=10 ({record(10).run_id})": "how it ended cannot be read",
    }


def test_a_compressed_store_comes_out_as_far_as_it_unpacks(path, rows, tmp_path):
    with Store.open(path) as store:
        store.copy(tmp_path / "small.sqlite.xz")
    whole = (tmp_path / "small.sqlite.xz").read_bytes()
    (tmp_path / "cut.sqlite.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="--salvage TARGET"):
        Store.open(tmp_path / "cut.sqlite.xz")
    found = salvage(tmp_path / "cut.sqlite.xz", tmp_path / "out.sqlite")
    kept, saved = rows(path), rows(tmp_path / "out.sqlite")
    assert 5 < found.saved < 40
    bare = {run for run in saved if not saved[run]["artefacts"] and kept[run]["artefacts"]}
    assert found.bare == len(bare)
    assert {run: {**kept[run], "artefacts": {}} if run in bare else kept[run] for run in saved} == saved


@pytest.mark.parametrize(("place", "least"), [(-1, 40), (-20, 40), (0.7, 5)])
def test_a_flipped_bit_of_a_compressed_store_costs_nothing_before_it(place, least, path, rows, tmp_path):
    with Store.open(path) as store:
        store.copy(tmp_path / "small.sqlite.xz")
    harmed = bytearray((tmp_path / "small.sqlite.xz").read_bytes())
    harmed[place if place < 0 else int(place * len(harmed))] ^= 1
    (tmp_path / "harmed.sqlite.xz").write_bytes(harmed)
    assert least <= salvage(tmp_path / "harmed.sqlite.xz", tmp_path / "out.sqlite").saved
    kept, saved = rows(path), rows(tmp_path / "out.sqlite")
    assert all({**kept[run], "artefacts": content["artefacts"]} == content for run, content in saved.items())


def test_the_name_of_an_artefact_that_is_no_text_costs_nothing(path, rows, tmp_path):
    whole, raw = rows(path), path.read_bytes()
    ((name,),) = {tuple(content["artefacts"]) for content in whole.values() if content["artefacts"]}
    place = raw.index(name.encode() + b"dst")  # the column, before the body
    (tmp_path / "harmed").write_bytes(raw[: place + 1] + bytes([raw[place + 1] ^ 0x80]) + raw[place + 2 :])
    assert salvage(tmp_path / "harmed", tmp_path / "out.sqlite").saved == 40
    assert rows(tmp_path / "out.sqlite") == whole


def test_what_is_no_store_is_refused_and_nothing_is_left(tmp_path):
    (tmp_path / "letter").write_bytes(b"dear reader" * 1000)
    with pytest.raises(StoreError, match="nothing of a dst store was found"):
        salvage(tmp_path / "letter", tmp_path / "out.sqlite")
    assert [p.name for p in tmp_path.iterdir()] == ["letter"]
    assert list(cells(random.Random(1).randbytes(50_000), PAGE)) is not None


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE histories SET body = zeroblob(20) WHERE run = 9",
        "UPDATE runs SET config = '{}' WHERE key = 9",
        "UPDATE runs SET seed = 77 WHERE key = 9",
        "DELETE FROM histories WHERE run = 9",
        "UPDATE provenance SET body = '{}'",
    ],
)
def test_a_writer_finds_damage_at_opening_and_a_copy_does_not_spread_it(harm, path, tmp_path):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(harm)
        raw.commit()
    with pytest.raises(StoreError, match=r"is damaged .*dst copy --store FILE --salvage TARGET"):
        Store.open(path, write=True)
    with Store.open(path) as store, pytest.raises(StoreError, match="damaged"):
        store.copy(tmp_path / "copy.sqlite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs.sqlite"]


def test_a_copy_names_the_file_that_is_damaged(path, tmp_path):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA writable_schema=ON")
        raw.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'typeof(body)', 'typeof(fody)') WHERE tbl_name = 'histories'"
        )
        raw.commit()
    with (
        Store.open(path) as store,
        pytest.raises(StoreError, match=r"runs.sqlite: the file is damaged \(no such column"),
    ):
        store.copy(tmp_path / "copy.sqlite")


def test_a_copy_finds_what_only_the_fingerprint_shows(path, tmp_path):
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE runs SET detail = '{\"step\":3}' WHERE key = 9")
        raw.commit()
    with Store.open(path) as store, pytest.raises(StoreError, match="does not have the fingerprint"):
        store.copy(tmp_path / "copy.sqlite")


@pytest.fixture
def forgetful(monkeypatch) -> None:
    """SQLite as it is built elsewhere: what is deleted stays on the disk unless a connection asks otherwise."""
    connect = connection._connect

    def without(path: Path, query: str) -> connection.Connection:
        opened = connect(path, query)
        opened.execute("PRAGMA secure_delete=OFF")
        return opened

    monkeypatch.setattr(connection, "_connect", without)


def replaced(tmp_path: Path) -> Path:
    """Eighty runs that have given way to results of fewer steps, which leaves pages free."""
    path, other = tmp_path / "replaced.sqlite", tmp_path / "other.sqlite"
    with Store.open(other, write=True) as store:
        store.put([long_record(seed, 20) for seed in range(80)])
    with Store.open(path, write=True) as store:
        store.put([long_record(seed, 400) for seed in range(80)])
        store.merge(other, prefer_other=True)
    return path


def rows_of_runs(path: Path, *, free: bool) -> int:
    return sum(len(cell.columns) == 10 for cell in cells(path.read_bytes(), PAGE, free=free))


def test_nothing_that_was_replaced_is_left_in_the_file(forgetful, tmp_path):
    assert rows_of_runs(replaced(tmp_path), free=True) == 80


def test_what_an_older_version_left_on_free_pages_does_not_come_back(forgetful, rows, tmp_path, monkeypatch):
    prepared = connection._prepared

    def older(path: Path, *, log: bool) -> connection.Connection:
        opened = prepared(path, log=log)
        opened.execute("PRAGMA secure_delete=OFF")
        return opened

    monkeypatch.setattr(connection, "_prepared", older)
    path = replaced(tmp_path)
    assert rows_of_runs(path, free=True) > rows_of_runs(path, free=False) == 80
    found = salvage(path, tmp_path / "out.sqlite")
    assert (found.saved, dict(found.lost)) == (80, {})
    assert rows(tmp_path / "out.sqlite") == rows(path)
    # Where the list of free pages is gone with the header, of two results the later one counts.
    salvage(harmed(path, 0, 100), tmp_path / "headless.sqlite")
    assert rows(tmp_path / "headless.sqlite") == rows(path)


def test_a_list_of_free_pages_that_names_one_in_use_is_not_believed(path, rows, tmp_path):
    with Store.open(path, write=True) as store:
        store.remove([run.id for run in store.runs() if run.seed % 2])
        whole = rows(path)
    raw = path.read_bytes()
    trunk = int.from_bytes(raw[32:36], "big")
    for table in ("runs", "histories"):
        leaf = next(page for page in range(1, len(raw) // PAGE) if page in children(raw, root(path, table)))
        harmed_file = harmed(path, (trunk - 1) * PAGE + 8, 4, leaf.to_bytes(4, "big"))
        salvage(harmed_file, tmp_path / "out.sqlite", overwrite=True)
        assert rows(tmp_path / "out.sqlite") == whole


def children(raw: bytes, page: int) -> set[int]:
    """The pages below an inner page of a table."""
    start = (page - 1) * PAGE
    assert raw[start] == 5
    count = int.from_bytes(raw[start + 3 : start + 5], "big")
    places = [int.from_bytes(raw[at : at + 2], "big") for at in range(start + 12, start + 12 + 2 * count, 2)]
    return {int.from_bytes(raw[start + place : start + place + 4], "big") for place in places}


@pytest.mark.parametrize("lean", [False, True], ids=["without artefacts", "lean"])
@pytest.mark.parametrize("harm", ["detail = '{\"stfp\":3}'", "status = 'diverged'", "digest = x'00112233'"])
def test_a_run_without_artefacts_has_a_fingerprint_too(harm, lean, path, rows, record, tmp_path):
    run = record(9) if lean else long_record(39)
    if lean:
        with Store.open(path) as store:
            store.copy(tmp_path / "lean.sqlite", artefacts_of=())
        path = tmp_path / "lean.sqlite"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"UPDATE runs SET {harm} WHERE id = ?", (run.run_id,))
        raw.commit()
    with Store.open(path) as store, pytest.raises(StoreError, match=f"{run.run_id}.*does not have the fingerprint"):
        store.copy(tmp_path / "copy.sqlite")
    found = salvage(path, tmp_path / "out.sqlite")
    assert [reason for name, reason in found.lost.items() if run.run_id in name] == [
        "what it found does not have the fingerprint it was recorded with"
    ]
    assert found.saved == len(rows(tmp_path / "out.sqlite")) == 39


def test_histories_that_changed_places_are_found_without_artefacts(path, tmp_path):
    with closing(sqlite3.connect(path)) as raw:
        first, second = [key for (key,) in raw.execute("SELECT key FROM runs WHERE task = 'own'")]
        (body,) = raw.execute("SELECT body FROM histories WHERE run = ?", (first,)).fetchone()
        raw.execute("UPDATE histories SET body = ? WHERE run = ?", (body, second))
        raw.commit()
    with Store.open(path) as store, pytest.raises(StoreError, match="does not have the fingerprint"):
        store.copy(tmp_path / "copy.sqlite")


def test_a_damaged_fingerprint_costs_no_run_that_has_another(path, rows, tmp_path):
    whole = rows(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE bare_fingerprints SET body = 'x' || substr(body, 2)")
        raw.commit()
    with Store.open(path) as store, pytest.raises(StoreError, match="does not have the fingerprint"):
        store.copy(tmp_path / "copy.sqlite")
    assert salvage(path, tmp_path / "out.sqlite").lost == {}
    assert rows(tmp_path / "out.sqlite") == whole
    with Store.open(tmp_path / "out.sqlite") as store:
        store.copy(tmp_path / "copy.sqlite")


def test_a_store_of_an_older_version_is_read_copied_merged_and_saved_as_before(path, rows, record, tmp_path):
    with Store.open(path) as store:
        store.copy(tmp_path / "old.sqlite", artefacts_of=())
    with closing(sqlite3.connect(tmp_path / "old.sqlite")) as raw:
        raw.execute("DROP TABLE bare_fingerprints")
        raw.execute("VACUUM")
    lean = rows(tmp_path / "old.sqlite")
    with Store.open(tmp_path / "old.sqlite") as store:
        store.copy(tmp_path / "copied.sqlite")
    with Store.open(tmp_path / "merged.sqlite", write=True) as store:
        store.merge(tmp_path / "old.sqlite")
    assert salvage(tmp_path / "old.sqlite", tmp_path / "saved.sqlite").lost == {}
    for name in ("copied", "merged", "saved"):
        assert rows(tmp_path / f"{name}.sqlite") == lean
    with Store.open(tmp_path / "old.sqlite", write=True) as store:
        store.put([record(40)])
        store.copy(tmp_path / "again.sqlite")


def test_a_file_that_was_cut_short_or_does_not_hold_together_says_that_more_may_be_lost(path, tmp_path):
    raw, short = path.read_bytes(), tmp_path / "short.sqlite"
    assert salvage(path, tmp_path / "out.sqlite").damage == ""
    for pages in range(20, len(raw) // PAGE, 12):
        short.write_bytes(raw[: pages * PAGE + 300])
        found = salvage(short, tmp_path / "out.sqlite", overwrite=True)
        missing = len(raw) - pages * PAGE - 300
        assert found.damage == f"the file was cut short, {missing} bytes are missing at its end"
    torn = harmed(path, (root(path, "runs") - 1) * PAGE, PAGE)
    assert salvage(torn, tmp_path / "out.sqlite", overwrite=True).damage.startswith("its pages do not fit together (")
    headless = harmed(path, 0, PAGE)
    assert "not a database" in salvage(headless, tmp_path / "out.sqlite", overwrite=True).damage


@pytest.mark.parametrize("with_log", [False, True])
def test_a_schema_that_is_no_text_does_not_stop_a_salvage(with_log, path, rows, tmp_path):
    """SQLite quotes the bytes in what it says, which Python then cannot read."""
    at = path.read_bytes().index(b"NOT NULL CHECK (typeof(body)") + 8
    damaged = harmed(path, at, 1, bytes([path.read_bytes()[at] ^ 0x80]))
    if with_log:
        damaged.with_name(f"{damaged.name}-wal").write_bytes(b"what a killed writer left")
    found = salvage(damaged, tmp_path / "out.sqlite")
    assert (found.saved, dict(found.lost)) == (40, {})
    assert found.damage.startswith("its pages do not fit together (")
    assert rows(tmp_path / "out.sqlite") == rows(path)


@pytest.mark.parametrize("name", ["harmed.sqlite", "link.sqlite"])
def test_a_salvage_never_replaces_what_it_reads(name, path, tmp_path):
    """What is lost today may be read by another version tomorrow, or by a person."""
    damaged = harmed(path, path.stat().st_size // 2, PAGE)
    before = damaged.read_bytes()
    (tmp_path / "link.sqlite").symlink_to(damaged)
    with pytest.raises(StoreError, match="is the damaged store itself: a salvage needs another path"):
        salvage(damaged, tmp_path / name, overwrite=True)
    assert damaged.read_bytes() == before
