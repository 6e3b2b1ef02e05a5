"""Bytes to arrays."""

import numpy as np
import pytest
from dst_lab.data import DataError, load
from dst_lab.data.datasets import read_cifar, read_idx


def test_idx_is_row_major_after_its_header():
    raw = bytes.fromhex("00000803 00000002 00000001 00000003") + bytes((1, 2, 3, 4, 5, 255))
    array = read_idx(raw, 3, "x")
    assert array.tolist() == [[[1, 2, 3]], [[4, 5, 255]]]
    assert array.dtype == np.uint8
    assert array.flags.writeable


@pytest.mark.parametrize("magic", ["00000801", "00000d03", "1f8b0808", ""])
def test_idx_with_a_wrong_magic_is_refused(magic):
    raw = bytes.fromhex(magic) + bytes(20) if magic else b""
    with pytest.raises(DataError, match=rf"train-images is not an idx file.*00000803, found '{magic}'"):
        read_idx(raw, 3, "train-images")


@pytest.mark.parametrize("values", [5, 7])
def test_idx_with_other_than_the_announced_bytes_is_refused(values):
    raw = bytes.fromhex("00000802 00000002 00000003") + bytes(values)
    with pytest.raises(
        DataError, match=rf"labels announces an array of shape \(2, 3\): expected 18 .*found {12 + values}"
    ):
        read_idx(raw, 2, "labels")


def test_idx_that_announces_more_than_there_is_memory_for_is_refused():
    raw = bytes.fromhex("00000803 ffffffff ffffffff ffffffff") + bytes(9)
    with pytest.raises(DataError, match="found 25"):
        read_idx(raw, 3, "x")


def test_cifar_record_is_label_then_planes():
    record = np.arange(3073, dtype=np.int64).astype(np.uint8)
    record[0] = 7
    images, labels = read_cifar(record.tobytes() + bytes(3073), "x")
    assert labels.tolist() == [7, 0]
    assert images.shape == (2, 3, 32, 32)
    # Plane 2, row 1, column 5 lies 2 * 1024 + 32 + 5 bytes after the label.
    assert images[0, 2, 1, 5] == (1 + 2 * 1024 + 32 + 5) % 256
    assert images.flags.writeable


def test_cifar_of_broken_records_is_refused():
    with pytest.raises(DataError, match="batch_3 is not a CIFAR-10 batch: expected records of 3073 bytes, found 3074"):
        read_cifar(bytes(3074), "batch_3")


def test_digits_fill_the_whole_byte_and_keep_their_thresholds():
    from sklearn.datasets import load_digits

    digits, bunch = load("digits"), load_digits()
    order = np.random.RandomState(0).permutation(1797)
    images, given = digits.train.images[:, 0], bunch.images[order[:1280]]
    assert digits.train.labels.tolist() == bunch.target[order[:1280]].tolist()
    pairs = sorted(set(zip(given.ravel().tolist(), images.ravel().tolist(), strict=True)))
    assert pairs[::8] == [(0, 0), (8, 127), (16, 255)]
    for sixteenths in (4, 8, 12):
        assert np.array_equal(images / 255 > sixteenths / 16, given > sixteenths)
