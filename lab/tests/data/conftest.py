"""Small stand-ins for the public data sets."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from dst_lab.data.datasets import SOURCES, File, Source


@pytest.fixture(autouse=True)
def _nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's data."""
    monkeypatch.delenv("DST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@dataclass
class Tiny:
    """A small data set in place of a public one: unpacked bytes by file name, and the arrays in them."""

    name: str
    raw: dict[str, bytes]
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    monkeypatch: pytest.MonkeyPatch

    @property
    def source(self) -> Source:
        return SOURCES[self.name]

    @property
    def folder(self) -> str:
        return self.source.folders[0]

    def register(self, **changes: object) -> None:
        """Make the catalogue expect exactly the bytes in `raw`."""
        files = tuple(File(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in self.raw.items())
        self.monkeypatch.setitem(SOURCES, self.name, replace(self.source, files=files, **changes))

    def write(self, root: Path) -> Path:
        """Lay all files under `root`, at the usual place."""
        for file in self.source.files:
            path = root / self.folder / (file.name + self.source.suffixes[0])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(self.raw[file.name]) if path.suffix == ".gz" else self.raw[file.name])
        return root


def idx(array: np.ndarray) -> bytes:
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + lengths + array.tobytes()


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    draw = np.random.RandomState(1)
    train, test = (draw.randint(0, 256, (n, 5, 4), dtype=np.uint8) for n in (12, 7))
    train_labels, test_labels = (draw.randint(0, 10, n).astype(np.uint8) for n in (12, 7))
    raw = {
        "train-images-idx3-ubyte": idx(train),
        "train-labels-idx1-ubyte": idx(train_labels),
        "t10k-images-idx3-ubyte": idx(test),
        "t10k-labels-idx1-ubyte": idx(test_labels),
    }
    tiny = Tiny("mnist", raw, train[:, None], train_labels, test[:, None], test_labels, monkeypatch)
    tiny.register(validation=3)
    return tiny


@pytest.fixture
def tiny_cifar(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    draw = np.random.RandomState(2)
    images = draw.randint(0, 256, (18, 3, 32, 32), dtype=np.uint8)
    labels = draw.randint(0, 10, 18).astype(np.uint8)
    records = np.concatenate([labels[:, None], images.reshape(18, -1)], 1)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    raw = {name: records[3 * i : 3 * i + 3].tobytes() for i, name in enumerate(names)}
    tiny = Tiny("cifar10", raw, images[:15], labels[:15], images[15:], labels[15:], monkeypatch)
    tiny.register(validation=4)
    return tiny
