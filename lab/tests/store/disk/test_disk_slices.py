"""A folder of slices is read as one store, and never written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dst_lab.cli.main import _show_warning
from dst_lab.store import Record, Series, Store, StoreError, StoreWarning, run_id


def run(seed: int, loss: float = 1.0) -> Record:
    history = {"validation_loss": Series(np.array([1]), np.array([loss]))}
    return Record(config={"task": "t", "estimator": {"name": "soft"}, "seed": seed}, status="done", history=history)


def write(path: Path, *records: Record) -> Path:
    with Store.open(path, write=True) as store:
        store.put(records)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs 0 and 1 compressed, then 1 with another result and 2 in a plain file."""
    (tmp_path / "slices").mkdir()
    with Store.open(write(tmp_path / "first.sqlite", run(0), run(1))) as store:
        store.copy(tmp_path / "slices" / "0001.sqlite.xz")
    shutil.move(write(tmp_path / "second.sqlite", run(1, 9.0), run(2)), tmp_path / "slices" / "0002.sqlite")
    (tmp_path / "slices" / "sessions.csv").write_text("not a store")
    return tmp_path / "slices"


def test_slices_are_one_store_and_of_a_run_twice_the_first_counts(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.warns(StoreWarning) as told:
        store = Store.open(folder)
    other = run_id(run(1).config)
    assert [str(one.message) for one in told] == [
        f"{folder / '0002.sqlite'} has another result of run {other} than an earlier slice, which counts"
    ]
    with store:
        assert [one.seed for one in store.runs()] == [0, 1, 2]
        assert [float(store.history(one.id)["validation_loss"].values[0]) for one in store.runs()] == [1.0, 1.0, 1.0]
        assert store.path == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_folder_of_one_slice_is_that_slice(folder: Path) -> None:
    (folder / "0002.sqlite").unlink()
    with Store.open(folder) as store:
        assert [one.seed for one in store.runs()] == [0, 1]


def test_a_folder_is_never_written_and_an_empty_one_is_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a file: a store is one file, .*dst copy --store slices runs.sqlite"):
        Store.open(folder, write=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        StoreError, match=r"is not a file, and no folder of slices either: it holds no \*.sqlite and no"
    ):
        Store.open(tmp_path / "empty")


def test_a_damaged_slice_is_named(folder: Path) -> None:
    (folder / "0001.sqlite.xz").write_bytes(b"\xfd7zXZ\0 and nothing more")
    with pytest.raises(StoreError, match=r"0001.sqlite.xz is damaged"):
        Store.open(folder)


@pytest.mark.filterwarnings("default::dst_lab.store.StoreWarning")
def test_the_command_line_tells_of_slices_that_differ(folder: Path, cli: Callable[..., Any]) -> None:
    told = cli("show", "--store", folder)
    assert told.code == 0
    assert told.err.startswith(f"dst: {folder / '0002.sqlite'} has another result of run ")
    assert told.err.count("\n") == 1
    assert cli("merge", folder, "--store", "all.sqlite").err.count("another result") == 1, "which opens it twice"
    (folder / "0002.sqlite").unlink()
    write(folder / "0003.sqlite", run(1), run(2))
    assert cli("show", "--store", folder).err == "", "the same result twice is no matter"


@pytest.mark.filterwarnings("ignore::dst_lab.store.StoreWarning")
def test_a_copy_of_a_folder_can_be_trained_on(folder: Path, tmp_path: Path) -> None:
    with Store.open(folder) as store:
        store.copy(tmp_path / "runs.sqlite")
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        assert store.put([run(3)]) == 1
        assert len(store.runs()) == 4


def test_other_warnings_are_shown_as_usual(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[object, ...]] = []
    _show_warning(lambda *given: seen.append(given), set(), "mind", DeprecationWarning, "file.py", 3)
    assert seen == [("mind", DeprecationWarning, "file.py", 3)]
    assert capsys.readouterr().err == ""
