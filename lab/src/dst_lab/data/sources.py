"""The public data sets: their files, where these lie and where they are published; each is read whole and verified."""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path

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
