"""Images as bits, for networks of logic gates: one bit for each threshold that a value may exceed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .dataset import Dataset, LevelDataset, LevelSplit, Split

MOST_THRESHOLDS = 254


def check_thresholds(thresholds: int) -> None:
    """Raise unless the number of thresholds is one that 256 grey values can tell apart."""
    if not 1 <= thresholds <= MOST_THRESHOLDS:
        raise ValueError(f"thresholds must be from 1 to {MOST_THRESHOLDS}, got {thresholds}")


def levels(images: npt.NDArray[np.uint8], thresholds: int) -> npt.NDArray[np.uint8]:
    """Count the thresholds t_k = k / (T + 1), k = 1..T, below each value: #{k : images / 255 > t_k}.

    Three thresholds are 0.25, 0.5 and 0.75; a value equal to a threshold does not exceed it.
    """
    check_thresholds(thresholds)
    if images.dtype != np.uint8:
        raise ValueError(f"levels are counted on uint8 images of 0..255, got {images.dtype}")
    # x/255 > k/(T+1) in whole numbers: k < x(T+1)/255, so there are ceil(x(T+1)/255) - 1 such k.
    scaled = np.arange(256) * (thresholds + 1)
    table = np.maximum((scaled - 1) // 255, 0).astype(np.uint8)
    counted: npt.NDArray[np.uint8] = table[images]
    return counted


def bits(levels: npt.NDArray[np.uint8], thresholds: int) -> npt.NDArray[np.bool_]:
    """Spread levels [N, channels, rows, columns] into bits [N, T * channels * rows * columns].

    The order is threshold, channel, row, column; the bit of the k-th threshold says that the value exceeds it.
    """
    check_thresholds(thresholds)
    if levels.ndim != 4 or levels.dtype != np.uint8:
        raise ValueError(f"expected uint8 levels [N, channels, rows, columns], got {levels.dtype} {list(levels.shape)}")
    if levels.size and levels.max() > thresholds:
        raise ValueError(f"expected levels of {thresholds} thresholds, 0..{thresholds}, got a level {levels.max()}")
    ranks = np.arange(thresholds, dtype=np.uint8).reshape(-1, 1, 1, 1)
    spread: npt.NDArray[np.bool_] = levels[:, None] > ranks
    return spread.reshape(len(levels), thresholds * int(np.prod(levels.shape[1:])))


def level_dataset(dataset: Dataset, thresholds: int) -> LevelDataset:
    """Reduce every split of a data set to levels."""

    def reduced(split: Split) -> LevelSplit:
        return LevelSplit(levels(split.images, thresholds), split.labels)

    return LevelDataset(
        name=dataset.name,
        thresholds=thresholds,
        classes=dataset.classes,
        train=reduced(dataset.train),
        validation=reduced(dataset.validation),
        test=reduced(dataset.test),
    )
