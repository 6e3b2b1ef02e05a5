"""Levels in one file: written reproducibly, verified on reading."""

import numpy as np
import pytest
from dst_lab.data import DataError, Dataset, Split, bits, levels, load, load_levels, prepare


def random_dataset(channels: int, rows: int = 5, columns: int = 3, name: str = "mnist") -> Dataset:
    draw = np.random.RandomState(channels)

    def split(n: int) -> Split:
        images = draw.randint(0, 256, (n, channels, rows, columns), dtype=np.uint8)
        return Split(images, draw.randint(0, 10, n))

    return Dataset(name=name, classes=10, train=split(11), validation=split(4), test=split(7))


@pytest.fixture
def prepared(tmp_path):
    path = tmp_path / "cifar10-3.levels"
    prepare(random_dataset(3, 32, 32, "cifar10"), 3, path)
    return path


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("thresholds", [1, 2, 3, 4, 7, 8, 15, 16, 127, 254])
def test_what_is_read_is_what_would_be_computed(tmp_path, channels, thresholds):
    dataset = random_dataset(channels)
    prepare(dataset, thresholds, tmp_path / "file")
    read = load_levels("mnist", thresholds, tmp_path / "file")
    assert (read.name, read.thresholds, read.classes) == ("mnist", thresholds, 10)
    for part in ("train", "validation", "test"):
        found, whole = getattr(read, part), getattr(dataset, part)
        assert np.array_equal(found.images, levels(whole.images, thresholds))
        assert found.labels.tolist() == whole.labels.tolist()
        assert (found.images.dtype, found.labels.dtype) == (np.uint8, np.int64)
        assert found.images.flags.writeable
        assert found.images.flags.c_contiguous


def test_levels_from_a_folder_are_those_from_a_file(tiny_cifar, tmp_path, monkeypatch):
    root = tiny_cifar.write(tmp_path / "data")
    prepare(load("cifar10", root), 3, tmp_path / "file")
    computed = load_levels("cifar10", 3, root)
    monkeypatch.setenv("DST_DATA", str(tmp_path / "file"))
    read = load_levels("cifar10", 3)
    for part in ("train", "validation", "test"):
        assert np.array_equal(getattr(read, part).images, getattr(computed, part).images)
        assert np.array_equal(getattr(read, part).labels, getattr(computed, part).labels)
    assert np.array_equal(bits(read.test.images, 3)[0, :1024], tiny_cifar.test[0, 0].ravel() / 255 > 0.25)


def test_one_file_serves_the_whole_data_set_too(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    with pytest.raises(DataError, match="prepare cifar10, not cifar10-whole: one file serves both"):
        prepare(load("cifar10-whole", root), 3, tmp_path / "file")
    prepare(load("cifar10", root), 3, tmp_path / "file")
    for source in (root, tmp_path / "file"):
        split, whole = load_levels("cifar10", 3, source), load_levels("cifar10-whole", 3, source)
        assert whole.name == "cifar10-whole"
        assert np.array_equal(whole.train.images, np.concatenate([split.train.images, split.validation.images]))
        assert np.array_equal(whole.validation.images, split.test.images)
        assert np.array_equal(whole.test.labels, split.test.labels)


def test_same_data_make_the_same_bytes(prepared, tmp_path):
    prepare(random_dataset(3, 32, 32, "cifar10"), 3, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == prepared.read_bytes()


def test_nothing_but_the_file_is_left(prepared, tmp_path):
    assert list(tmp_path.iterdir()) == [prepared]


def test_failed_preparation_leaves_the_file_that_was_there(prepared, tmp_path, monkeypatch):
    before = prepared.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(random_dataset(3, 32, 32, "cifar10"), 3, prepared)
    assert prepared.read_bytes() == before
    assert list(tmp_path.iterdir()) == [prepared]


@pytest.mark.parametrize(("name", "thresholds"), [("mnist", 3), ("cifar10", 7), ("digits", 3)])
def test_other_levels_are_refused(prepared, name, thresholds):
    message = f"holds the levels of cifar10 at 3 thresholds, expected {name} at {thresholds}"
    with pytest.raises(DataError, match=message):
        load_levels(name, thresholds, prepared)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "notes").write_text("hello")
    with pytest.raises(DataError, match="notes is no whole file of prepared levels"):
        load_levels("mnist", 3, tmp_path / "notes")


def test_no_flipped_byte_of_the_content_goes_unseen(prepared):
    """Flips in what zip keeps of times and systems change nothing."""
    whole, before = prepared.read_bytes(), load_levels("cifar10", 3, prepared)
    seen = 0
    for place in range(0, len(whole), 97):
        raw = bytearray(whole)
        raw[place] ^= 1
        prepared.write_bytes(raw)
        try:
            after = load_levels("cifar10", 3, prepared)
        except DataError:
            seen += 1
            continue
        for part in ("train", "validation", "test"):
            assert np.array_equal(getattr(after, part).images, getattr(before, part).images)
            assert np.array_equal(getattr(after, part).labels, getattr(before, part).labels)
    assert seen > 0.9 * len(range(0, len(whole), 97))


@pytest.mark.parametrize("kept", [0, 5, 13, 60, 300, 5000, -4, -1])
def test_truncation_is_named(prepared, kept):
    prepared.write_bytes(prepared.read_bytes()[:kept])
    with pytest.raises(DataError, match=str(prepared)):
        load_levels("cifar10", 3, prepared)
