"""Data sets by name: found, verified, read, split; a file that is not what it should be is never read."""

import gzip
import hashlib
from functools import partial

import numpy as np
import pytest
from dst_lab.data import DataError, bits, levels, load, load_levels
from dst_lab.data.datasets import File, data_root, read_cifar, read_idx, unpacked


def assert_splits(dataset, tiny, validation):
    kept = len(tiny.train) - validation
    for split, images, labels in [
        (dataset.train, tiny.train[:kept], tiny.train_labels[:kept]),
        (dataset.validation, tiny.train[kept:], tiny.train_labels[kept:]),
        (dataset.test, tiny.test, tiny.test_labels),
    ]:
        assert np.array_equal(split.images, images)
        assert split.labels.tolist() == labels.tolist()
        assert len(split) == len(labels)
        assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int64)
        assert split.images.flags.writeable
        assert split.images.flags.c_contiguous


def test_mnist_keeps_its_last_training_images_for_validation(tiny_mnist, tmp_path):
    dataset = load("mnist", tiny_mnist.write(tmp_path / "data"))
    assert (dataset.name, dataset.classes) == ("mnist", 10)
    assert_splits(dataset, tiny_mnist, 3)


def test_cifar_keeps_its_last_training_images_for_validation(tiny_cifar, tmp_path):
    assert_splits(load("cifar10", tiny_cifar.write(tmp_path / "data")), tiny_cifar, 4)


def test_cifar_is_read_without_its_outer_folder(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    (root / "cifar-10" / "cifar-10-batches-bin").rename(root / "cifar-10-batches-bin")
    assert_splits(load("cifar10", root), tiny_cifar, 4)


def test_flipped_byte_is_never_trained_on(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    path = root / "cifar-10" / "cifar-10-batches-bin" / "data_batch_4.bin"
    raw = bytearray(path.read_bytes())
    raw[777] ^= 4
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"{path} is damaged: expected 9219 bytes with sha256 .*, found sha256 "):
        load("cifar10", root)


def test_digits_are_always_there_and_in_a_fixed_order():
    digits = load("digits")
    assert [len(split) for split in (digits.train, digits.validation, digits.test)] == [1280, 256, 261]
    assert digits.train.images.shape == (1280, 1, 8, 8)
    # The first ten of RandomState(0).permutation(1797) are 1081, 1707, 927, 713, 262, 182, 303, 895, 933, 1266.
    assert digits.train.labels[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]
    together = np.concatenate([split.images for split in (digits.train, digits.validation, digits.test)])
    assert together.max() == 255
    assert len(np.unique(together.reshape(1797, -1), axis=0)) == 1797


def test_a_whole_data_set_holds_nothing_out():
    digits, whole = load("digits"), load("digits-whole")
    assert whole.name == "digits-whole"
    assert np.array_equal(whole.train.images, np.concatenate([digits.train.images, digits.validation.images]))
    assert np.array_equal(whole.train.labels, np.concatenate([digits.train.labels, digits.validation.labels]))
    for split in (whole.validation, whole.test):
        assert np.array_equal(split.images, digits.test.images)
        assert np.array_equal(split.labels, digits.test.labels)


def test_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(DataError, match="no data set 'mist': choose one of digits, mnist, fashion-mnist, cifar10"):
        load("mist")
    for name in ("mist-whole", "digits-whole-whole", "-whole"):
        with pytest.raises(DataError, match=f"no data set '{name}': .* cifar10, or one with -whole after it"):
            load(name)
    with pytest.raises(DataError, match="no data set 'cifar'"):
        load_levels("cifar", 3)


def test_what_is_missing_is_named_with_where_it_belongs_and_how_to_bring_it(tiny_cifar, tiny_mnist, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    folder = root / "cifar-10" / "cifar-10-batches-bin"
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError) as caught:
        load("cifar10", root)
    said, _, command = str(caught.value).partition(", or bring it there by: ")
    assert said.startswith(f"cifar10 is not whole in {folder}: data_batch_2 missing; name another folder by --data")
    assert command.startswith(f"mkdir -p {folder} && curl https://")
    assert command.endswith(f"-C {folder}")
    with pytest.raises(DataError, match=r"mnist/\{train-images-idx3-ubyte,train-labels-idx1-ubyte,.*\}\.gz'"):
        load("mnist", tmp_path)


def test_the_folder_given_goes_before_the_variable_before_the_cache(tmp_path, monkeypatch):
    assert data_root() == tmp_path / "cache" / "decoupled-st"
    monkeypatch.setenv("DST_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/data") == tmp_path / "data"
    monkeypatch.setenv("DST_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert data_root() == tmp_path / ".cache" / "decoupled-st"


def test_idx_is_row_major_after_its_header():
    raw = bytes.fromhex("00000803 00000002 00000001 00000003") + bytes((1, 2, 3, 4, 5, 255))
    array = read_idx(raw, 3, "x")
    assert array.tolist() == [[[1, 2, 3]], [[4, 5, 255]]]
    assert array.dtype == np.uint8
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (partial(read_idx, bytes.fromhex("00000801"), 3), "x is not an idx file.*00000803, found '00000801'"),
        (partial(read_idx, b"", 3), "x is not an idx file.*00000803, found ''"),
        (partial(read_idx, bytes.fromhex("00000802 00000002 00000003 0000"), 2), r"\(2, 3\): expected 18 .*found 14"),
        (partial(read_cifar, bytes(3074)), "x is not a CIFAR-10 batch: expected records of 3073 bytes, found 3074"),
    ],
)
def test_what_is_not_of_its_format_is_refused(read, words):
    with pytest.raises(DataError, match=words):
        read(where="x")


def test_cifar_record_is_label_then_planes():
    record = np.arange(3073, dtype=np.int64).astype(np.uint8)
    record[0] = 7
    images, labels = read_cifar(record.tobytes() + bytes(3073), "x")
    assert labels.tolist() == [7, 0]
    assert images.shape == (2, 3, 32, 32)
    # Plane 2, row 1, column 5 lies 2 * 1024 + 32 + 5 bytes after the label.
    assert images[0, 2, 1, 5] == (1 + 2 * 1024 + 32 + 5) % 256
    assert images.flags.writeable


RAW = bytes(range(256)) * 40
FILE = File("values", len(RAW), hashlib.sha256(RAW).hexdigest())
FLIPPED = RAW[:5000] + bytes((RAW[5000] ^ 1,)) + RAW[5001:]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("values.gz", gzip.compress(RAW)[:-20], "a gzip stream that ends early"),
        ("values.gz", RAW, "a corrupt gzip stream (Not a gzipped file"),
        ("values.gz", gzip.compress(RAW + b"x"), f"more than {len(RAW)} bytes"),
        ("values", RAW[:100], "100 bytes"),
        ("values", FLIPPED, f"sha256 {hashlib.sha256(FLIPPED).hexdigest()}"),
    ],
)
def test_damage_is_named_with_what_was_expected_and_found(tmp_path, name, content, found):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        unpacked(path, FILE)
    start = f"{path} is damaged: expected {len(RAW)} bytes with sha256 {FILE.sha256}, found {found}"
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("; delete it and download it again")


EVERY_VALUE = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)


def test_levels_count_the_thresholds_exceeded():
    for thresholds in range(1, 255):
        steps = np.arange(1, thresholds + 1) / (thresholds + 1)
        expected = (EVERY_VALUE[..., None] / 255 > steps).sum(-1)
        counted = levels(EVERY_VALUE, thresholds)
        assert np.array_equal(counted, expected), thresholds
        assert counted.dtype == np.uint8


def test_bits_are_ordered_threshold_channel_row_column():
    draw = np.random.RandomState(0)
    images = draw.randint(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    spread = bits(levels(images, 3), 3)
    assert spread.shape == (2, 3 * 3 * 4 * 5)
    assert spread.dtype == np.bool_
    for n, k, c, i, j in np.ndindex(2, 3, 3, 4, 5):
        assert spread[n, ((k * 3 + c) * 4 + i) * 5 + j] == (images[n, c, i, j] / 255 > (k + 1) / 4)


@pytest.mark.parametrize(
    ("of", "given", "thresholds", "words"),
    [
        (levels, EVERY_VALUE, 0, "from 1 to 254, got 0"),
        (bits, EVERY_VALUE, 255, "from 1 to 254, got 255"),
        (levels, EVERY_VALUE / 255, 3, r"uint8 images of 0\.\.255, got float64"),
        (bits, levels(EVERY_VALUE, 7), 3, "levels of 3 thresholds, 0..3, got a level 7"),
        (bits, np.zeros((1, 256), np.uint8), 3, r"got uint8 \[1, 256\]"),
    ],
)
def test_what_has_no_levels_or_bits_is_refused(of, given, thresholds, words):
    with pytest.raises(ValueError, match=words):
        of(given, thresholds)
