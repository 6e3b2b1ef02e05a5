"""Any byte may flip: what is read is what was recorded, or it is refused."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dst_lab.store import DamagedRunError, Store, StoreError


@pytest.fixture
def path(tmp_path, record) -> Path:
    path = tmp_path / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(seed, detail={"worse_than_untrained": seed}) for seed in range(6)])
    return path


def test_any_byte_may_flip_and_what_is_read_is_what_was_recorded(path, rows, tmp_path):
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
@pytest.mark.parametrize("what", [b"worse_than_untrained", b'"commit"'], ids=["detail", "provenance"])
def test_a_flipped_letter_is_found_before_training_and_when_reading(what, bit, path):
    raw = bytearray(path.read_bytes())
    raw[raw.find(what) + 2] ^= bit
    path.write_bytes(raw)
    with pytest.raises(DamagedRunError, match=r"is damaged .*Restore it from a copy"):
        Store.open(path, write=True)
    with Store.open(path) as store:
        with pytest.raises(DamagedRunError):
            store.check_whole()
        store.check_pages()
        damaged = store.leave_out_damaged()
        assert len(damaged) + len(store.runs()) == 6
        assert len(damaged) == (1 if what == b"worse_than_untrained" else 6), "the provenance is that of them all"


def test_an_index_that_lost_a_run_is_found(path):
    """By the table the run is there, by its id it is not: it would be recorded twice."""
    with Store.open(path) as store:
        run = store.runs()[0].id.encode()
    with closing(sqlite3.connect(path)) as opened:
        ((root,),) = opened.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_runs_1'"
        ).fetchall()
    raw = bytearray(path.read_bytes())
    at = raw.find(run, (root - 1) * 1024)
    assert at < root * 1024
    raw[at] ^= 1
    path.write_bytes(raw)
    with Store.open(path) as store, pytest.raises(StoreError, match="is damaged"):
        store.check_whole()
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(path, write=True)
