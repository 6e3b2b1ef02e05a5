"""The public data sets: where their files lie, read whole and verified; in memory three splits of images, or of their
threshold levels for networks of logic gates."""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.runs import WHOLE

VARIABLE = "DST_DATA"
DIGITS = "digits"
CLASSES = 10


class DataError(Exception):
    """A data set that cannot be found or trusted; the message says what to do about it."""


@dataclass(frozen=True)
class File:
    """One file of a data set; size and digest are those of its unpacked bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set. The first folder and the first suffix are the usual ones."""

    files: tuple[File, ...]
    folders: tuple[str, ...]
    suffixes: tuple[str, ...]
    download: str
    """A shell command that brings all files into the folder `{folder}`."""
    validation: int

    def found(self, root: Path) -> dict[File, Path]:
        """The files that are under `root`, each at the first place that has it."""
        found: dict[File, Path] = {}
        for file, folder, suffix in product(self.files, self.folders, self.suffixes):
            path = root / folder / (file.name + suffix)
            if path.exists():
                found.setdefault(file, path)
        return found


def _idx(folder: str, address: str, digests: tuple[str, str, str, str]) -> Source:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    wanted = ",".join(names)
    return Source(
        files=tuple(File(*fact) for fact in zip(names, sizes, digests, strict=True)),
        folders=(folder,),
        suffixes=(".gz", ""),
        download=f"curl --create-dirs --output-dir {{folder}} -O '{address}{{{{{wanted}}}}}.gz'",
        validation=10_000,
    )


SOURCES: dict[str, Source] = {
    "mnist": _idx(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion-mnist": _idx(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "cifar10": Source(
        files=(
            File("data_batch_1", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            File("data_batch_2", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            File("data_batch_3", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            File("data_batch_4", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            File("data_batch_5", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            File("test_batch", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        folders=("cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin"),
        suffixes=(".bin",),
        download="mkdir -p {folder} && curl https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz | "
        "tar xz --strip-components=1 -C {folder}",
        validation=5_000,
    ),
}


def data_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder to read from: the one asked for, else DST_DATA, else `decoupled-st` in the user's cache. It need not
    exist."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "decoupled-st"


def verified(name: str, root: Path) -> dict[File, bytes]:
    """The unpacked bytes of every file of a data set, verified."""
    source = SOURCES[name]
    found = source.found(root)
    if missing := [file.name for file in source.files if file not in found]:
        folder = root / source.folders[0]
        raise DataError(
            f"{name} is not whole in {folder}: {', '.join(missing)} missing; name another folder by --data or "
            f"{VARIABLE}, or bring it there by: {source.download.format(folder=folder)}"
        )
    return {file: unpacked(path, file) for file, path in found.items()}


def unpacked(path: Path, file: File) -> bytes:
    """The verified, unpacked bytes of a file, gzipped if its name ends in .gz."""
    raw, fault = b"", None
    try:
        # One byte more than expected: enough to see that a file is too long, and to reach the CRC at a gzip's end.
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            raw = stream.read(file.size + 1)
    except EOFError:
        fault = "a gzip stream that ends early"
    except (gzip.BadGzipFile, zlib.error) as error:
        fault = f"a corrupt gzip stream ({error})"
    except OSError as error:
        raise DataError(f"could not read {path}: {error.strerror or error}") from error
    if fault is None and len(raw) != file.size:
        fault = f"more than {file.size} bytes" if len(raw) > file.size else f"{len(raw)} bytes"
    digest = hashlib.sha256(raw).hexdigest()
    if fault is None and digest != file.sha256:
        fault = f"sha256 {digest}"
    if fault:
        raise DataError(
            f"{path} is damaged: expected {file.size} bytes with sha256 {file.sha256}, found {fault}; "
            "delete it and download it again"
        )
    return raw


Bytes = npt.NDArray[np.uint8]
DIGITS_TRAIN, DIGITS_VALIDATION, DIGITS_TEST = 1280, 256, 261
CIFAR_SHAPE = (3, 32, 32)
MOST_THRESHOLDS = 254


@dataclass(frozen=True, eq=False)
class Split:
    """Images or their levels, uint8 [N, channels, rows, columns], and labels, int64 [N]."""

    images: Bytes
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim != 4 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"expected uint8 images [N, channels, rows, columns] and N labels, got {images.dtype} "
                f"{list(images.shape)} and labels {list(labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __add__(self, other: "Split") -> "Split":
        return Split(np.concatenate([self.images, other.images]), np.concatenate([self.labels, other.labels]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """A data set: train to fit, validation for every choice, test only ever to report."""

    name: str
    classes: int
    train: Split
    validation: Split
    test: Split
    thresholds: int = 0
    """The number of evenly spaced thresholds where the images are levels; 0 where they are grey values."""

    @property
    def splits(self) -> dict[str, Split]:
        """The three by their names."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load digits, mnist, fashion-mnist or cifar10, verified; where files are missing, the error says how to get them.

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
    names, base = (DIGITS, *SOURCES), name.removesuffix(WHOLE)
    if base not in names:
        raise DataError(
            f"there is no data set {name!r}: choose one of {', '.join(names)}, or one with {WHOLE} after it"
        )
    data = _digits() if base == DIGITS else _read(base, data_root(folder))
    if base == name:
        return data
    return replace(data, name=name, train=data.train + data.validation, validation=data.test)


def load_levels(name: str, thresholds: int, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set as `load` does, and reduce its images to levels: see `levels`."""
    data = load(name, folder)
    train, validation, test = (Split(levels(split.images, thresholds), split.labels) for split in data.splits.values())
    return replace(data, thresholds=thresholds, train=train, validation=validation, test=test)


def levels(images: Bytes, thresholds: int) -> Bytes:
    """Count the thresholds t_k = k / (T + 1), k = 1..T, below each value: #{k : images / 255 > t_k}.

    Three thresholds are 0.25, 0.5 and 0.75; a value equal to a threshold does not exceed it.
    """
    _check_thresholds(thresholds)
    if images.dtype != np.uint8:
        raise ValueError(f"levels are counted on uint8 images of 0..255, got {images.dtype}")
    # x/255 > k/(T+1) in whole numbers: k < x(T+1)/255, so there are ceil(x(T+1)/255) - 1 such k.
    table = np.maximum((np.arange(256) * (thresholds + 1) - 1) // 255, 0).astype(np.uint8)
    counted: Bytes = table[images]
    return counted


def bits(levels: Bytes, thresholds: int) -> npt.NDArray[np.bool_]:
    """Spread levels [N, channels, rows, columns] into bits [N, T * channels * rows * columns].

    The order is threshold, channel, row, column; the bit of the k-th threshold says that the value exceeds it.
    """
    _check_thresholds(thresholds)
    if levels.ndim != 4 or levels.dtype != np.uint8:
        raise ValueError(f"expected uint8 levels [N, channels, rows, columns], got {levels.dtype} {list(levels.shape)}")
    if levels.size and levels.max() > thresholds:
        raise ValueError(f"expected levels of {thresholds} thresholds, 0..{thresholds}, got a level {levels.max()}")
    ranks = np.arange(thresholds, dtype=np.uint8).reshape(-1, 1, 1, 1)
    spread: npt.NDArray[np.bool_] = levels[:, None] > ranks
    return spread.reshape(len(levels), thresholds * int(np.prod(levels.shape[1:])))


def read_idx(raw: bytes, dimensions: int, where: str) -> Bytes:
    """The array in an idx file: 00 00 08 (uint8), number of axes, big-endian uint32 lengths, values."""
    magic = bytes((0, 0, 8, dimensions))
    if raw[:4] != magic:
        raise DataError(f"{where} is not an idx file: expected it to begin with {magic.hex()}, found {raw[:4].hex()!r}")
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4))
    expected = start + int(np.prod(shape, dtype=object))
    if len(raw) != expected:
        raise DataError(f"{where} announces an array of shape {shape}: expected {expected} bytes, found {len(raw)}")
    # A copy, as arrays over `bytes` are read-only and torch warns of those.
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def read_cifar(raw: bytes, where: str) -> tuple[Bytes, Bytes]:
    """Images [N, 3, 32, 32] and labels [N] of a batch: records of one label byte, then the three planes."""
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if len(raw) % record:
        raise DataError(f"{where} is not a CIFAR-10 batch: expected records of {record} bytes, found {len(raw)} bytes")
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE).copy(), records[:, 0].copy()


def _read(name: str, root: Path) -> Dataset:
    """A data set from its files."""
    raw, source = verified(name, root), SOURCES[name]
    if name == "cifar10":
        batches = [read_cifar(raw[file], f"{name} {file.name}") for file in source.files]
        train, train_labels = (np.concatenate(part) for part in zip(*batches[:-1], strict=True))
        test, test_labels = batches[-1]
    else:
        train, train_labels, test, test_labels = (
            read_idx(raw[file], 3 if "images" in file.name else 1, f"{name} {file.name}") for file in source.files
        )
        train, test = train[:, None], test[:, None]
    kept = len(train) - source.validation
    return _dataset(name, (train[:kept], train[kept:], test), (train_labels[:kept], train_labels[kept:], test_labels))


def _digits() -> Dataset:
    """scikit-learn's 1,797 digits [1, 8, 8], in a fixed order of our own."""
    from sklearn.datasets import load_digits  # which takes a second to import

    bunch: Any = load_digits()
    # Rounded down, so that a value v/16 at or below a threshold k/16 does not step over it.
    images = (bunch.images.astype(np.int64) * 255 // 16).astype(np.uint8)[:, None]
    order = np.random.RandomState(0).permutation(len(images))
    parts = np.split(order, [DIGITS_TRAIN, DIGITS_TRAIN + DIGITS_VALIDATION])
    return _dataset(DIGITS, [images[part] for part in parts], [bunch.target[part] for part in parts])


def _dataset(name: str, images: Any, labels: Any) -> Dataset:
    train, validation, test = (
        Split(*pair) for pair in zip(images, (of.astype(np.int64) for of in labels), strict=True)
    )
    return Dataset(name=name, classes=CLASSES, train=train, validation=validation, test=test)


def _check_thresholds(thresholds: int) -> None:
    """Raise unless the number of thresholds is one that 256 grey values can tell apart."""
    if not 1 <= thresholds <= MOST_THRESHOLDS:
        raise ValueError(f"thresholds must be from 1 to {MOST_THRESHOLDS}, got {thresholds}")
