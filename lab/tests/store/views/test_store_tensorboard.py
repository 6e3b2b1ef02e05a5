"""Event files, read back by the rules of their format."""

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError, export_tensorboard
from dst_lab.store.views.tensorboard import FILE, crc32c, masked


def messages(raw: bytes) -> list[bytes]:
    """The records of a file, checksums checked."""
    found = []
    while raw:
        (length,) = struct.unpack_from("<Q", raw)
        assert struct.unpack_from("<I", raw, 8)[0] == masked(raw[:8])
        content = raw[12 : 12 + length]
        assert struct.unpack_from("<I", raw, 12 + length)[0] == masked(content)
        found.append(content)
        raw = raw[16 + length :]
    return found


def fields(raw: bytes) -> list[tuple[int, object]]:
    """The fields of a protocol buffer: number, and bytes, a whole number or a float."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            found.append((tag >> 3, varint()))
        elif kind == 2:
            length = varint()
            found.append((tag >> 3, raw[at : at + length]))
            at += length
        else:
            form = {1: "<d", 5: "<f"}[kind]
            found.append((tag >> 3, struct.unpack_from(form, raw, at)[0]))
            at += struct.calcsize(form)
    return found


def scalars(raw: bytes) -> dict[tuple[str, int], float]:
    first, *events = messages(raw)
    assert dict(fields(first))[3] == b"brain.Event:2"
    found = {}
    for event in map(dict, map(fields, events)):
        for number, value in fields(event[5]):
            assert number == 1
            parts = dict(fields(value))
            found[parts[1].decode(), event[2]] = parts[2]
    return found


def test_the_checksum_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_every_value_is_there(tmp_path, record) -> None:
    records = [record(seed, provenance={"started": "2026-11-16T12:00:00Z"}) for seed in range(3)]
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put(records)
        count = export_tensorboard(store, tmp_path / "out")
        assert export_tensorboard(store, tmp_path / "out") == count, "an earlier export is replaced"
    assert count == 3 * (5 + 2 * 3)
    for one in records:
        (place,) = (tmp_path / "out" / "stochastic-binary" / "decoupled tau_f=0.1 tau_b=0.7").glob(f"*{one.run_id}")
        raw = (place / FILE).read_bytes()
        expected = {
            (metric, int(step)): float(value)
            for name, series in one.history.items()
            for metric, values in series.components(name)
            for step, value in zip(series.steps, values, strict=True)
        }
        assert scalars(raw) == expected
        assert dict(fields(messages(raw)[1]))[1] == 1794830400.0
        assert json.loads((place / "config.json").read_text())["seed"] == one.config["seed"]


def test_runs_that_are_gone_are_gone_from_the_next_export(tmp_path, record) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([record(0), record(1)])
        export_tensorboard(store, tmp_path / "out")
        store.remove([record(0).run_id])
        export_tensorboard(store, tmp_path / "out")
    (left,) = (tmp_path / "out").rglob(FILE)
    assert record(1).run_id in str(left)


def test_another_export_below_the_folder_stays(tmp_path, record) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([record(0), record(1)])
        export_tensorboard(store, tmp_path / "out" / "deep" / "mine")
        below = content(tmp_path / "out" / "deep")
        export_tensorboard(store, tmp_path / "out", overwrite=True)
        store.remove([record(0).run_id])
        export_tensorboard(store, tmp_path / "out")
    assert content(tmp_path / "out" / "deep") == below
    assert len(list((tmp_path / "out" / "stochastic-binary").rglob(FILE))) == 1


def test_what_float32_cannot_hold_is_infinite(tmp_path) -> None:
    history = {"loss": Series(np.arange(3), np.array([1e39, -1e300, 3e38]))}
    config = {"task": "t", "estimator": {"name": "soft"}, "seed": 0}
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([Record(config=config, status="done", history=history)])
        export_tensorboard(store, tmp_path / "out")
    (found,) = tmp_path.rglob(FILE)
    assert list(scalars(found.read_bytes()).values()) == [np.inf, -np.inf, np.float32(3e38)]


def test_a_note_is_written_so_that_no_terminal_obeys_it(tmp_path, record) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([record(0)])
        store.note([record(0).run_id], "red \x1b[31m")
        export_tensorboard(store, tmp_path / "out")
    (found,) = tmp_path.rglob("note.txt")
    assert found.read_text() == "red \\x1b[31m\n"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_that_fails_leaves_the_earlier_one_as_it_was(tmp_path, record) -> None:
    out = tmp_path / "out"
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([record(0), record(1)])
        store.note([record(0).run_id], "mine")
        export_tensorboard(store, out)
        (out / "letter").write_text("dear reader")
        before = content(out)
        store.note([record(0).run_id], "")
        store.put([record(2), record(3)])
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as raw, raw:
        raw.execute("UPDATE histories SET body = zeroblob(20) WHERE run = 3")
    with Store.open(tmp_path / "runs.sqlite") as store:
        for place in (out, tmp_path / "new"):
            with pytest.raises(StoreError, match="is damaged"):
                export_tensorboard(store, place)
    assert content(out) == before
    assert sorted(path.name for path in out.iterdir()) == ["dst-export.txt", "letter", "stochastic-binary"]
    assert not (tmp_path / "new").exists()
    with Store.open(tmp_path / "runs.sqlite", write=False) as store:
        store.leave_out_damaged()
        export_tensorboard(store, out)
    after = content(out)
    assert after["letter"] == b"dear reader"
    assert len([name for name in after if name.endswith(FILE)]) == 3
    assert not [name for name in after if name.endswith("note.txt")]
    assert {name for name in before if "note.txt" not in name} <= set(after)


def test_no_name_leads_out_of_the_folder_and_nothing_else_is_overwritten(tmp_path) -> None:
    history = {"loss": Series(np.arange(2), np.array([np.nan, -1.0]))}
    config = {"task": "../../up/\x1b", "estimator": {"name": ".."}, "seed": 0}
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([Record(config=config, status="done", history=history)])
        export_tensorboard(store, tmp_path / "a" / "out")
        (found,) = tmp_path.rglob(FILE)
        assert found.is_relative_to(tmp_path / "a" / "out")
        assert np.isnan(scalars(found.read_bytes())["loss", 0])
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "letter").write_text("dear reader")
        with pytest.raises(StoreError, match=r"is a folder with other things in it: .*--overwrite"):
            export_tensorboard(store, tmp_path / "mine")
        export_tensorboard(store, tmp_path / "mine", overwrite=True)
        assert (tmp_path / "mine" / "letter").read_text() == "dear reader"
        with pytest.raises(StoreError, match="letter is a file: event files go into a folder"):
            export_tensorboard(store, tmp_path / "mine" / "letter")


def test_a_very_long_name_is_cut_and_stays_its_own(tmp_path) -> None:
    """Names of 255 bytes are all that file systems take, of which drafts need some."""
    names = ["ä" * 300 + end for end in "ab"]
    with Store.open(tmp_path / "a.sqlite", write=True) as store:
        for task in names:
            config = {"task": task, "estimator": {"name": "e" * 400}, "seed": 10**18, "lr": 0.1}
            store.put([Record(config=config, status="done", history={"m" * 300: Series([1], np.array([0.5]))})])
        assert export_tensorboard(store, tmp_path / "out") == 2
    places = [path.parent.relative_to(tmp_path / "out").parts for path in (tmp_path / "out").rglob("config.json")]
    assert len({place[0] for place in places}) == 2, "two tasks are two folders"
    assert max(len(part.encode()) for place in places for part in place) <= 200


def test_a_temperature_that_moves_is_no_constant_by_its_name(tmp_path: Path) -> None:
    taus = [(0.1, 2.0), (0.1, "2.0:0.1:linear"), ("self:high=8", "self:high=8")]
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for tau_f, tau_b in taus:
            config = {"task": "t", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}, "seed": 0}
            store.put([Record(config=config, status="done", history={"x": Series(np.array([1]), np.array([1.0]))})])
        export_tensorboard(store, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out" / "t").iterdir()) == [
        "decoupled tau_f=0.1 tau_b=2",
        "decoupled tau_f=0.1 tau_b=2.0_0.1_linear",
        "decoupled tau_f=self_high=8 tau_b=self_high=8",
    ]


def test_folders_of_an_estimator_that_is_not_known_are_told_apart(tmp_path: Path) -> None:
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for tau in (0.5, 2.0):
            config = {"task": "t", "estimator": {"name": "bold", "tau": tau, "sigma": 1}, "seed": 0}
            store.put([Record(config=config, status="done", history={"x": Series(np.array([1]), np.array([1.0]))})])
        export_tensorboard(store, tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out" / "t").iterdir())
    assert [name.replace("sigma=1 ", "").replace(" sigma=1", "") for name in names] == ["bold tau=0.5", "bold tau=2.0"]
