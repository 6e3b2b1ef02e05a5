"""The public data sets themselves, where DST_DATA has them."""

import os
from pathlib import Path

import numpy as np
import pytest
from dst_lab.data import inventory, load, load_levels, prepare
from dst_lab.data.sources import SOURCES

# Read here, as every test runs without the variable.
FOLDER = os.environ.get("DST_DATA")


@pytest.fixture
def real():
    def folder(name: str) -> Path:
        if not FOLDER:
            pytest.skip("DST_DATA does not name a folder with the public data sets")
        if len(SOURCES[name].found(Path(FOLDER))) < len(SOURCES[name].files):
            pytest.skip(f"{name} is not in the folder that DST_DATA names")
        return Path(FOLDER)

    return folder


@pytest.mark.parametrize(
    ("name", "shape", "sizes", "first_labels", "mean"),
    [
        ("mnist", (1, 28, 28), (50_000, 10_000, 10_000), (5, 7), [0.1307]),
        ("fashion-mnist", (1, 28, 28), (50_000, 10_000, 10_000), (9, 9), [0.2860]),
        ("cifar10", (3, 32, 32), (45_000, 5_000, 10_000), (6, 3), [0.4914, 0.4822, 0.4465]),
    ],
)
def test_public_data_set(real, name, shape, sizes, first_labels, mean):
    dataset = load(name, real(name))
    splits = (dataset.train, dataset.validation, dataset.test)
    assert tuple(len(split) for split in splits) == sizes
    assert all(split.images.shape[1:] == shape for split in splits)
    assert (dataset.train.labels[0], dataset.test.labels[0]) == first_labels
    assert set(dataset.test.labels.tolist()) == set(range(10))
    # The published means of the training images, to their four digits.
    total = sum(split.images.sum(axis=(0, 2, 3), dtype=np.int64) for split in splits[:2])
    count = 255 * (sizes[0] + sizes[1]) * shape[1] * shape[2]
    assert (total / count).round(4).tolist() == mean


def test_public_data_sets_are_whole(real):
    for name in SOURCES:
        real(name)
    assert [entry[2] for entry in inventory(FOLDER)] == ["complete"] * 4


def test_cifar_levels_fit_in_thirty_megabytes(real, tmp_path):
    folder = real("cifar10")
    prepare(load("cifar10", folder), 3, tmp_path / "cifar10-3.levels")
    assert (tmp_path / "cifar10-3.levels").stat().st_size < 30e6
    read, computed = load_levels("cifar10", 3, tmp_path / "cifar10-3.levels"), load_levels("cifar10", 3, folder)
    for part in ("train", "validation", "test"):
        assert np.array_equal(getattr(read, part).images, getattr(computed, part).images)
        assert np.array_equal(getattr(read, part).labels, getattr(computed, part).labels)
