"""A data set by its name: as images, or as levels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dst_lab.runs import WHOLE

from .binarise import check_thresholds, level_dataset
from .catalogue import CLASSES, DIGITS, SOURCES, DataError, File, base_name
from .dataset import Dataset, LevelDataset, Split, whole
from .download import fetch
from .integrity import unpacked
from .locate import data_root, present
from .prepared import read_header, read_prepared
from .readers import read_cifar, read_digits, read_idx

DIGITS_TRAIN, DIGITS_VALIDATION, DIGITS_TEST = 1280, 256, 261

Bytes = npt.NDArray[np.uint8]


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load digits, mnist, fashion-mnist or cifar10, verified; what the folder lacks is downloaded into it.

    The folder is the one given, else that of the variable DST_DATA, else `decoupled-st` in the user's cache. Validation
    is the last 10,000 training images (of CIFAR-10 5,000); test is the official test set. With `-whole` after its name
    a data set has all training images in train, and the test images for validation too: only to compare with results
    that were made so.

    >>> digits = load("digits")
    >>> digits.train.images.shape, len(digits.validation), len(digits.test)
    ((1280, 1, 8, 8), 256, 261)
    >>> len(load("digits-whole").train)
    1536
    """
    data = _held_out(base_name(name), folder)
    return whole(data) if name.endswith(WHOLE) else data


def _held_out(name: str, folder: str | os.PathLike[str] | None) -> Dataset:
    if name == DIGITS:
        return _digits()
    root = data_root(folder)
    if root.is_file():
        raise DataError(_not_a_folder(root, name))
    source = SOURCES[name]
    raw = _verified(name, root)
    if source.format == "idx":
        arrays = [
            read_idx(raw[file], 3 if "images" in file.name else 1, f"{name} {file.name}") for file in source.files
        ]
        train, train_labels, test, test_labels = arrays
        train, test = train[:, None], test[:, None]
    else:
        batches = [read_cifar(raw[file], f"{name} {file.name}") for file in source.files]
        train = np.concatenate([images for images, _ in batches[:-1]])
        train_labels = np.concatenate([labels for _, labels in batches[:-1]])
        test, test_labels = batches[-1]
    kept = len(train) - source.validation
    return Dataset(
        name=name,
        classes=CLASSES,
        train=_split(train[:kept], train_labels[:kept]),
        validation=_split(train[kept:], train_labels[kept:]),
        test=_split(test, test_labels),
    )


def load_levels(name: str, thresholds: int, source: str | os.PathLike[str] | None = None) -> LevelDataset:
    """Load the levels of a data set from a prepared file, or compute them from the images in a folder.

    `source`, else the variable DST_DATA, names the file or the folder.
    """
    base = base_name(name)
    check_thresholds(thresholds)
    path = data_root(source)
    data = _prepared(path, base, thresholds) if path.is_file() else level_dataset(_held_out(base, source), thresholds)
    return whole(data) if name.endswith(WHOLE) else data


def _prepared(path: Path, name: str, thresholds: int) -> LevelDataset:
    header = read_header(path)
    if header and (header.dataset, header.thresholds) != (name, thresholds):
        raise DataError(
            f"{path} holds the levels of {header.dataset} at {header.thresholds} thresholds, "
            f"expected {name} at {thresholds}: give the file prepared for that, or a folder of data sets"
        )
    return read_prepared(path)


def _digits() -> Dataset:
    images, labels = read_digits()
    order = np.random.RandomState(0).permutation(len(images))
    train, validation, test = np.split(order, [DIGITS_TRAIN, DIGITS_TRAIN + DIGITS_VALIDATION])
    return Dataset(
        name=DIGITS,
        classes=CLASSES,
        train=_split(images[train], labels[train]),
        validation=_split(images[validation], labels[validation]),
        test=_split(images[test], labels[test]),
    )


def _split(images: Bytes, labels: Bytes) -> Split:
    return Split(images, labels.astype(np.int64))


def _verified(name: str, root: Path) -> dict[File, bytes]:
    source = SOURCES[name]
    missing = [file for file in source.files if file not in present(source, root)]
    if missing:
        fetch(name, source, missing, root)
    return {file: unpacked(path, file) for file, path in present(source, root).items()}


def _not_a_folder(path: Path, name: str) -> str:
    header = read_header(path)
    if header is None:
        return f"{path} is a file, expected the folder that holds {name}"
    return (
        f"{path} holds only the levels of {header.dataset} at {header.thresholds} thresholds, "
        f"expected the images of {name}: give a folder of data sets"
    )
