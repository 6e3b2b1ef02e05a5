"""Networks beside a store: whole or not at all, checked when they are read, carried by copies and merges."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from dst_lab.store import Record, Series, Store, StoreError
from dst_lab.store.contents.networks import Network, path_of, write

CONFIG = {"task": "t", "estimator": {"name": "decoupled", "tau_f": 1.0, "tau_b": 1.0}, "lr": 0.1}


def record(seed: int, value: float = 1.0, network: bool = True) -> Record:
    draw = np.random.default_rng(seed)
    tensors = {"parameters/w": draw.normal(size=(3, 4)).astype(np.float32).T, "fixed/wiring": np.arange(seed + 2)}
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


def test_bit_for_bit(kept) -> None:
    with Store.open(kept) as store:
        assert store.kept() == set(ids(0, 1))
        for seed in (0, 1):
            found = store.network(ids(seed)[0]).tensors
            for name, array in record(seed).network.items():
                assert found[name].dtype == array.dtype
                assert np.array_equal(found[name], array)


def test_one_that_was_not_kept_is_a_sentence(kept) -> None:
    with Store.open(kept) as store, pytest.raises(StoreError, match=r"is not there: there is no .*train the run with"):
        store.network(ids(2)[0])


@pytest.mark.parametrize("place", ["head", "about", "tensor", "short", "empty", "pickle"])
def test_a_damaged_file_is_a_sentence(kept, place) -> None:
    path = path_of(kept, ids(0)[0])
    content = bytearray(path.read_bytes())
    if place in ("short", "empty"):
        content = content[: len(content) // 2 if place == "short" else 0]
    elif place == "pickle":
        content = bytearray(b"\x80\x04\x95" + bytes(200))
    else:
        at = {"head": 9, "about": content.index(b'"record":"') + 11, "tensor": len(content) - 3}[place]
        content[at] ^= 1
    path.write_bytes(content)
    with Store.open(kept) as store:
        with pytest.raises(StoreError, match=f"{path} is damaged: restore it from a copy, or delete it"):
            store.network(ids(0)[0])
        assert store.network(ids(1)[0]).run == ids(1)[0]


def test_a_file_of_another_run_or_training_is_refused(kept, tmp_path) -> None:
    first, second = (path_of(kept, run) for run in ids(0, 1))
    shutil.copy(second, first)
    with Store.open(kept) as store, pytest.raises(StoreError, match=f"is the network of run {ids(1)[0]}"):
        store.network(ids(0)[0])
    with Store.open(tmp_path / "b.sqlite", write=True) as other:
        other.put([record(0, value=7.0)])
    shutil.copy(path_of(tmp_path / "b.sqlite", ids(0)[0]), first)
    with Store.open(kept) as store, pytest.raises(StoreError, match="is of another training of run"):
        store.network(ids(0)[0])


def test_a_second_result_changes_neither_record_nor_network(kept) -> None:
    before = path_of(kept, ids(0)[0]).read_bytes()
    with Store.open(kept, write=True) as store:
        store.put([record(0, value=7.0)])
        assert store.network(ids(0)[0]).tensors.keys() == record(0).network.keys()
    assert path_of(kept, ids(0)[0]).read_bytes() == before


def test_an_equal_result_brings_a_network_that_was_missing(kept) -> None:
    with Store.open(kept, write=True) as store:
        assert store.put([record(2)]) == 0
        assert store.kept() == set(ids(0, 1, 2))


def test_no_record_without_the_network_that_was_asked_for(tmp_path, monkeypatch) -> None:
    """The disk takes the store and not the networks: nothing is recorded, and the sentence says why."""
    path = tmp_path / "a.sqlite"
    Path(f"{path}.networks").write_text("in the way")
    with Store.open(path, write=True) as store:
        with pytest.raises(StoreError, match=r"a.sqlite.networks"):
            store.put([record(0)])
        assert store.runs() == []
        store.put([record(1, network=False)])
        assert len(store.runs()) == 1


def test_copies_carry_them(kept, tmp_path) -> None:
    for name in ("b.sqlite", "c.sqlite.xz"):
        with Store.open(kept) as store:
            store.copy(tmp_path / name)
        with Store.open(tmp_path / name) as copy:
            assert copy.kept() == set(ids(0, 1))
            assert np.array_equal(copy.network(ids(1)[0]).tensors["parameters/w"], record(1).network["parameters/w"])
    with Store.open(kept) as store:
        store.copy(tmp_path / "lean.sqlite", artefacts_of=set())
    assert not Path(f"{tmp_path / 'lean.sqlite'}.networks").exists()


def test_a_copy_does_not_carry_damage(kept, tmp_path) -> None:
    path_of(kept, ids(1)[0]).write_bytes(b"nothing")
    with Store.open(kept) as store, pytest.raises(StoreError, match="is damaged"):
        store.copy(tmp_path / "b.sqlite")
    assert not (tmp_path / "b.sqlite").exists()
    assert not Path(f"{tmp_path / 'b.sqlite'}.networks").exists()


def test_merges_carry_those_of_the_records_that_stay(kept, tmp_path) -> None:
    """Run 0 differs here: the record stays, and so does its network. Run 2 is equal, and brings what was missing."""
    other = tmp_path / "b.sqlite"
    with Store.open(other, write=True) as store:
        store.put([record(0, value=7.0), record(2), record(3)])
    before = path_of(kept, ids(0)[0]).read_bytes()
    with Store.open(kept, write=True) as store:
        report = store.merge(other)
        assert report.differing == (ids(0)[0],)
        assert report.networks == 2
        assert store.merge(other).networks == 0
        assert store.kept() == set(ids(0, 1, 2, 3))
        assert all(store.network(run).run == run for run in ids(0, 1, 2, 3))
    assert path_of(kept, ids(0)[0]).read_bytes() == before


def test_a_result_that_gave_way_takes_its_network_with_it(kept, tmp_path) -> None:
    """Run 0 of the other store has another result and no network: a network of the first is of no record any more."""
    with Store.open(tmp_path / "b.sqlite", write=True) as store:
        store.put([record(0, value=7.0, network=False)])
    with Store.open(kept, write=True) as store:
        assert store.merge(tmp_path / "b.sqlite", prefer_other=True).replaced == 1
        assert store.kept() == set(ids(1))


@pytest.mark.filterwarnings("ignore::dst_lab.store.StoreWarning")
@pytest.mark.parametrize("slices", [1, 2])
def test_a_folder_of_slices_has_the_networks_beside_its_slices(kept, tmp_path, slices) -> None:
    """Run 0 lies in both slices, with another result and network in the second: the first counts."""
    folder = tmp_path / "slices"
    folder.mkdir()
    with Store.open(kept) as store:
        store.copy(folder / "0001.sqlite.xz")
    if slices == 2:
        with Store.open(folder / "0002.sqlite", write=True) as store:
            store.put([record(0, value=7.0), record(2), record(3)])
        path_of(folder / "0001.sqlite.xz", ids(1)[0]).unlink()
    expected = set(ids(0, 1) if slices == 1 else ids(0, 2, 3))
    with Store.open(folder) as store:
        assert store.kept() == expected
        assert all(store.network(run).run == run for run in expected)
        store.copy(tmp_path / "copied.sqlite")
    with Store.open(tmp_path / "merged.sqlite", write=True) as store:
        store.merge(folder)
    for name in ("copied.sqlite", "merged.sqlite"):
        with Store.open(tmp_path / name) as store:
            assert store.kept() == expected
            assert all(store.network(run).run == run for run in expected)


def test_a_file_of_a_later_format_says_so(kept, monkeypatch) -> None:
    monkeypatch.setattr("dst_lab.store.contents.networks.FORMAT", "dst-network 2")
    write(kept, Network(ids(0)[0], "00", {"a": np.zeros(1, np.float32)}))
    monkeypatch.undo()
    with Store.open(kept) as store, pytest.raises(StoreError, match=r"of another format .*upgrade dst-lab"):
        store.network(ids(0)[0])


@pytest.mark.filterwarnings("ignore::dst_lab.store.StoreWarning")
def test_a_network_of_a_result_that_does_not_count_is_not_kept(kept, tmp_path) -> None:
    """Run 0 is in both slices, and only the second has its network, which is of the second's own result."""
    folder = tmp_path / "slices"
    folder.mkdir()
    with Store.open(folder / "1.sqlite", write=True) as store:
        store.put([record(0, value=7.0, network=False)])
    with Store.open(kept) as store:
        store.copy(folder / "2.sqlite")
    with Store.open(folder) as store:
        assert store.kept() == set(ids(1))
        store.copy(tmp_path / "joined.sqlite")
        with pytest.raises(StoreError, match="was not kept of the result that counts here, the first slice's"):
            store.network(ids(0)[0])
    with Store.open(tmp_path / "joined.sqlite") as store:
        assert store.kept() == set(ids(1))
    with Store.open(tmp_path / "merged.sqlite", write=True) as store:
        assert store.merge(folder).networks == 1


def test_the_networks_of_another_store_beside_this_one_are_not_kept(kept, tmp_path) -> None:
    with Store.open(tmp_path / "b.sqlite", write=True) as store:
        store.put([record(0, value=7.0, network=False)])
    shutil.copy(tmp_path / "b.sqlite", kept)  # over the store, beside whose networks it then lies
    with Store.open(kept) as store:
        assert store.kept() == set()
