"""Networks of a store: whole or not at all, checked when they are read, carried by copies and merges."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Store, StoreError, networks


@pytest.fixture
def make(record):
    def make(seed, *, shift=0.0, kept=True, **more):
        draw = np.random.default_rng(seed)
        tensors = {"parameters/w": draw.normal(size=(3, 4)).astype(np.float32).T, "fixed/wiring": np.arange(seed + 2)}
        return record(seed, shift=shift, network=tensors if kept else {}, **more)

    return make


@pytest.fixture
def kept(path, make) -> Path:
    """Runs 0 and 1 with their networks, 2 without."""
    with Store.open(path, write=True) as store:
        store.put([make(0), make(1), make(2, kept=False)])
    return path


@pytest.fixture
def ids(make):
    return lambda *seeds: {make(seed).run_id for seed in seeds}


def _file(store: Path, run: str) -> Path:
    (path,) = networks.folder_of(store).glob(f"{run}-*.safetensors")
    return path


def test_bit_for_bit(kept, make, ids) -> None:
    with Store.open(kept) as store:
        assert store.kept() == ids(0, 1)
        for seed in (0, 1):
            found = store.network(make(seed).run_id)
            for name, array in make(seed).network.items():
                assert found[name].dtype == array.dtype
                assert np.array_equal(found[name], array)
        with pytest.raises(StoreError, match=r"is missing: there is no .*train the run with --keep"):
            store.network(make(2).run_id)


@pytest.mark.parametrize("place", ["head", "about", "tensor", "short", "empty", "pickle"])
def test_a_damaged_file_is_a_sentence_and_is_not_copied(kept, place, make, tmp_path) -> None:
    file = _file(kept, make(0).run_id)
    content = bytearray(file.read_bytes())
    if place in ("short", "empty"):
        content = content[: len(content) // 2 if place == "short" else 0]
    elif place == "pickle":
        content = bytearray(b"\x80\x04\x95" + bytes(200))
    else:
        at = {"head": 9, "about": content.index(b'"record":"') + 11, "tensor": len(content) - 3}[place]
        content[at] ^= 1
    file.write_bytes(content)
    with Store.open(kept) as store:
        for read in (lambda: store.network(make(0).run_id), lambda: store.copy(tmp_path / "b.sqlite")):
            with pytest.raises(StoreError, match=f"{file} is damaged: restore it from a copy, or delete it"):
                read()
        assert store.network(make(1).run_id)
    assert not (tmp_path / "b.sqlite").exists()


def test_a_file_of_another_run_result_or_format_is_refused(kept, make, monkeypatch) -> None:
    first, second = (_file(kept, make(seed).run_id) for seed in (0, 1))
    shutil.copy(second, first)
    with Store.open(kept) as store, pytest.raises(StoreError, match=f"of run {make(1).run_id}, not of result"):
        store.network(make(0).run_id)
    run, digest = first.stem.split("-")
    monkeypatch.setattr(networks, "FORMAT", "dst-network 2")
    networks.write(kept, run, digest, {"a": np.zeros(1, np.float32)})
    monkeypatch.undo()
    with Store.open(kept) as store, pytest.raises(StoreError, match=r"of another format .*upgrade dst-lab"):
        store.network(run)


def test_an_equal_result_brings_a_network_that_was_missing(kept, make, ids) -> None:
    with Store.open(kept, write=True) as store:
        assert store.put([make(2)]) == 0
        assert store.kept() == ids(0, 1, 2)


def test_no_record_without_the_network_that_was_asked_for(path, make) -> None:
    """The disk takes the store and not the networks: nothing is recorded, and the sentence says why."""
    networks.folder_of(path).write_text("in the way")
    with Store.open(path, write=True) as store:
        with pytest.raises(StoreError, match=r"runs.sqlite.networks"):
            store.put([make(0)])
        assert store.runs() == []
        assert store.put([make(1, kept=False)]) == 1


@pytest.mark.parametrize("name", ["b.sqlite", "c.sqlite.xz"])
def test_copies_carry_them_and_lean_ones_do_not(kept, name, tmp_path, make, ids) -> None:
    with Store.open(kept) as store:
        store.copy(tmp_path / name)
        store.copy(tmp_path / "lean.sqlite", artefacts_of=set())
    with Store.open(tmp_path / name) as copy:
        assert copy.kept() == ids(0, 1)
        found = copy.network(make(1).run_id)["parameters/w"]
        assert np.array_equal(found, make(1).network["parameters/w"])
    assert not networks.folder_of(tmp_path / "lean.sqlite").exists()


def test_merges_carry_those_of_the_records_that_stay(kept, tmp_path, make, ids) -> None:
    """Run 0 differs here: the record stays, and so does its network. Run 2 is equal, and brings what was missing."""
    other = tmp_path / "b.sqlite"
    with Store.open(other, write=True) as store:
        store.put([make(0, shift=7.0), make(2), make(3)])
    before = _file(kept, make(0).run_id)
    with Store.open(kept, write=True) as store:
        report = store.merge(other)
        assert (report.differing, report.networks) == ((make(0).run_id,), 2)
        assert store.merge(other).networks == 0
        assert store.kept() == ids(0, 1, 2, 3)
        assert _file(kept, make(0).run_id) == before
        assert store.merge(other, prefer_other=True).networks == 1
        assert _file(kept, make(0).run_id) != before, "the one of the result that gave way is gone"
        assert store.remove(ids(0, 3)) == 2
        assert store.kept() == ids(1, 2)
    assert len(list(networks.folder_of(kept).iterdir())) == 2


@pytest.mark.filterwarnings("ignore::dst_lab.store.StoreWarning")
def test_slices_have_the_networks_of_the_results_that_count(kept, tmp_path, make, ids) -> None:
    """Run 0 is in both slices, and only the second has its network, which is of the second's own result."""
    folder = tmp_path / "slices"
    folder.mkdir()
    with Store.open(folder / "1.sqlite", write=True) as store:
        store.put([make(0, shift=7.0, kept=False)])
    with Store.open(kept) as store:
        store.copy(folder / "2.sqlite.xz")
    with Store.open(folder) as store:
        assert store.kept() == ids(1)
        store.copy(tmp_path / "joined.sqlite")
        with pytest.raises(StoreError, match="is missing: there is no"):
            store.network(make(0).run_id)
    with Store.open(tmp_path / "merged.sqlite", write=True) as store:
        assert store.merge(folder).networks == 1
    for name in ("joined.sqlite", "merged.sqlite"):
        with Store.open(tmp_path / name) as store:
            assert store.kept() == ids(1)
