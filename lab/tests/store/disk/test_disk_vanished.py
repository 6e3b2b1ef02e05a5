"""A store that is removed, moved or written over while a process records runs in it."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from dst_lab.store import Store, StoreError, compare
from dst_lab.store.contents import rows
from dst_lab.store.transfer import rescue


def _copied_over(path: Path) -> None:
    shutil.copyfile(path.parent / "backup", path)


def _cut(path: Path) -> None:
    os.truncate(path, 4096)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _written_over(path: Path) -> None:
    path.write_bytes(b"a letter, of no great length")


def _moved_over(path: Path) -> None:
    os.replace(path.parent / "backup", path)


def _folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _folder_removed(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.fixture
def path(tmp_path, record, monkeypatch) -> Path:
    """A store with runs 0 and 1, and beside it a copy of it with run 0 alone."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "here" / "runs.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(0)])
        store.copy(path.parent / "backup")
        store.put([record(1)])
    return path


@pytest.mark.parametrize(
    ("harm", "words", "saved"),
    [
        (Path.unlink, "is gone", [0, 1, 2, 3]),
        (_moved_over, "was replaced by another file", [0, 1, 2, 3]),
        (_folder_moved, "is gone", [0, 1, 2, 3]),
        (_folder_removed, "is gone", [0, 1, 2, 3]),
        (_copied_over, "was written over by something else", [2, 3]),
        (_cut, "was changed by something else", [2, 3]),
        (_emptied, "was changed by something else", [2, 3]),
        (_written_over, "was changed by something else", [2, 3]),
    ],
)  # fmt: skip
def test_the_writer_stops_and_saves_what_there_is(harm, words, saved, path, record):
    with Store.open(path, write=True) as store:
        store.put([record(2)])
        harm(path)
        with pytest.raises(StoreError) as caught:
            store.put([record(3)])
    sentence = str(caught.value)
    assert sentence.startswith(f"{path} {words}")
    place = path.parent if path.parent.exists() else Path.cwd()
    rescued = place / "runs.rescued.sqlite"
    assert f"{len(saved)} runs that this process had or trained are saved in {rescued}" in sentence
    with Store.open(rescued) as store:
        assert [run.seed for run in store.runs()] == saved
        for run in store.runs():
            assert (store.history(run.id)["usage"].values == record(run.seed).history["usage"].values).all()
    assert sorted(p.name for p in place.iterdir() if p.name.startswith((".", "runs.rescued"))) == [rescued.name]


def test_harm_in_the_middle_of_a_write_is_found_after_it(path, record, monkeypatch):
    with Store.open(path, write=True) as store:
        fold = store._writer.fold
        monkeypatch.setattr(store._writer, "fold", lambda: (fold(), path.unlink()))
        with pytest.raises(StoreError, match="is gone"):
            store.put([record(2)])
    with Store.open(path.with_name("runs.rescued.sqlite")) as store:
        assert [run.seed for run in store.runs()] == [0, 1, 2]


def test_a_second_rescue_does_not_replace_the_first(path, record):
    for _ in range(2):
        with Store.open(path, write=True) as store:
            path.unlink()
            with pytest.raises(StoreError, match="is gone"):
                store.put([record(2)])
    assert path.with_name("runs.rescued.sqlite").exists()
    assert path.with_name("runs.rescued-2.sqlite").exists()


def test_a_time_that_changed_or_a_copy_put_back_is_no_harm(path, record):
    with Store.open(path, write=True) as store:
        os.utime(path)
        store.put([record(2)])
        same = path.read_bytes()
        path.write_bytes(b"x")
        path.write_bytes(same)
        store.put([record(3)])
        store.copy(path.with_name("vacuumed"))
        shutil.copyfile(path.with_name("vacuumed"), path)  # the same runs on other pages
        store.put([record(4)])
    with Store.open(path, write=True) as store:
        assert [run.seed for run in store.runs()] == [0, 1, 2, 3, 4]
    assert not list(path.parent.glob("*rescued*"))


def test_a_run_that_is_recorded_again_and_again_takes_its_room_once(path, record, monkeypatch):
    """Of what is kept in memory for a rescue: counted anew each time, it would push out all others, and itself."""
    monkeypatch.setattr(rescue, "MOST_KEPT", 4 * rows.encode(record(0)).size)
    with Store.open(path, write=True) as store:
        for _ in range(9):
            store.put([record(100)])
        store.put([record(101)])
        _emptied(path)
        with pytest.raises(StoreError, match="2 runs that this process had or trained are saved"):
            store.check()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_no_utf_8_is_copied_from_and_rescued_in(tmp_path, record):
    """SQL cannot say such a name. Where the file vanished, all runs were lost."""
    folder = tmp_path / os.fsdecode(b"l\xe4rm")
    folder.mkdir()
    path, copy = folder / "runs.sqlite", folder / "copy.sqlite"
    with Store.open(path, write=True) as store:
        store.put([record(seed=0)])
        store.copy(copy)
    assert compare(path, copy).same == 1
    assert sorted(file.name for file in folder.iterdir()) == ["copy.sqlite", "runs.sqlite"]
    with Store.open(path, write=True) as store:
        path.unlink()
        with pytest.raises(StoreError, match="2 runs that this process had or trained are saved"):
            store.put([record(seed=1)])
    with Store.open(folder / "runs.rescued.sqlite") as saved:
        assert [run.seed for run in saved.runs()] == [0, 1]
