"""Levels and bits, against their definition."""

import numpy as np
import pytest
from dst_lab.data import bits, levels

EVERY_VALUE = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)


def test_levels_count_the_thresholds_exceeded():
    for thresholds in range(1, 255):
        steps = np.arange(1, thresholds + 1) / (thresholds + 1)
        expected = (EVERY_VALUE[..., None] / 255 > steps).sum(-1)
        counted = levels(EVERY_VALUE, thresholds)
        assert np.array_equal(counted, expected), thresholds
        assert counted.dtype == np.uint8


def test_three_thresholds_are_quarters():
    values = np.array([0, 63, 64, 127, 128, 191, 192, 255], np.uint8).reshape(1, 1, 1, 8)
    assert levels(values, 3).ravel().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_value_on_a_threshold_does_not_exceed_it():
    # 4 thresholds are fifths, and 51/255 is one fifth exactly.
    values = np.array([50, 51, 52, 203, 204, 205], np.uint8).reshape(1, 1, 1, 6)
    assert levels(values, 4).ravel().tolist() == [0, 0, 1, 3, 3, 4]


def test_bits_are_ordered_threshold_channel_row_column():
    draw = np.random.RandomState(0)
    images = draw.randint(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    spread = bits(levels(images, 3), 3)
    assert spread.shape == (2, 3 * 3 * 4 * 5)
    assert spread.dtype == np.bool_
    for n, k, c, i, j in np.ndindex(2, 3, 3, 4, 5):
        assert spread[n, ((k * 3 + c) * 4 + i) * 5 + j] == (images[n, c, i, j] / 255 > (k + 1) / 4)


@pytest.mark.parametrize("thresholds", [1, 2, 254])
def test_bits_sum_to_their_level(thresholds):
    counted = levels(EVERY_VALUE, thresholds)
    assert np.array_equal(bits(counted, thresholds).reshape(thresholds, 16, 16).sum(0), counted[0, 0])


def test_bits_of_no_images():
    assert bits(np.zeros((0, 3, 32, 32), np.uint8), 3).shape == (0, 9216)


@pytest.mark.parametrize("thresholds", [-1, 0, 255])
def test_number_of_thresholds_is_checked(thresholds):
    with pytest.raises(ValueError, match=f"from 1 to 254, got {thresholds}"):
        levels(EVERY_VALUE, thresholds)
    with pytest.raises(ValueError, match=f"from 1 to 254, got {thresholds}"):
        bits(EVERY_VALUE, thresholds)


def test_levels_of_other_than_bytes_are_refused():
    with pytest.raises(ValueError, match=r"uint8 images of 0\.\.255, got float64"):
        levels(EVERY_VALUE / 255, 3)


def test_bits_of_levels_of_more_thresholds_are_refused():
    with pytest.raises(ValueError, match=r"levels of 3 thresholds, 0..3, got a level 7"):
        bits(levels(EVERY_VALUE, 7), 3)


def test_bits_of_flat_levels_are_refused():
    with pytest.raises(ValueError, match=r"got uint8 \[1, 256\]"):
        bits(np.zeros((1, 256), np.uint8), 3)
