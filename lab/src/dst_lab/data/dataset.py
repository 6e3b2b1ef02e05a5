"""A data set in memory: three splits of images, or of their threshold levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dst_lab.runs import WHOLE


def _check(kind: str, values: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    if values.ndim != 4 or values.dtype != np.uint8 or labels.shape != values.shape[:1]:
        raise ValueError(
            f"expected uint8 {kind} [N, channels, rows, columns] and N labels, "
            f"got {values.dtype} {list(values.shape)} and labels {list(labels.shape)}"
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Images uint8 [N, channels, rows, columns] and labels int64 [N]."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("images", self.images, self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __add__(self, other: Split) -> Split:
        return Split(np.concatenate([self.images, other.images]), np.concatenate([self.labels, other.labels]))


@dataclass(frozen=True, eq=False)
class LevelSplit:
    """Levels uint8 [N, channels, rows, columns], how many thresholds each value exceeds, and labels int64 [N]."""

    levels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("levels", self.levels, self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __add__(self, other: LevelSplit) -> LevelSplit:
        return LevelSplit(np.concatenate([self.levels, other.levels]), np.concatenate([self.labels, other.labels]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """A data set: train to fit, validation for every choice, test only ever to report."""

    name: str
    classes: int
    train: Split
    validation: Split
    test: Split

    @property
    def splits(self) -> dict[str, Split]:
        """The three by their names."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelDataset:
    """A data set reduced to levels of `thresholds` evenly spaced thresholds."""

    name: str
    thresholds: int
    classes: int
    train: LevelSplit
    validation: LevelSplit
    test: LevelSplit

    @property
    def splits(self) -> dict[str, LevelSplit]:
        """The three by their names."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


AnyDataset = TypeVar("AnyDataset", Dataset, LevelDataset)


def whole(data: AnyDataset) -> AnyDataset:
    """The same without images held out: validation joins train, and the test images take its place."""
    return replace(data, name=data.name + WHOLE, train=data.train + data.validation, validation=data.test)
