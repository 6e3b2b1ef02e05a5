"""Images as levels: how many of the thresholds 0.25, 0.5 and 0.75 each value exceeds, small enough to carry along.

    python levels.py FOLDER OUT      FOLDER holds cifar-10/, mnist/ and fashion-mnist/ in their canonical layouts

Writes OUT/NAME.SPLIT.x.xz, the high bits of all values and then the low bits of their Gray code, and OUT/NAME.SPLIT.y.
"""

import gzip
import lzma
import sys
from pathlib import Path

import numpy as np


def save(out: Path, name: str, images: np.ndarray, labels: np.ndarray) -> None:
    values = images.astype(np.float32) / np.float32(255)
    level = sum((values > np.float32(t)).astype(np.uint8) for t in (0.25, 0.5, 0.75))
    planes = np.packbits(level >> 1).tobytes() + np.packbits((level ^ (level >> 1)) & 1).tobytes()
    (out / f"{name}.x.xz").write_bytes(lzma.compress(planes))
    (out / f"{name}.y").write_bytes(labels.astype(np.uint8).tobytes())


def main(folder: Path, out: Path) -> None:
    out.mkdir(exist_ok=True)
    for name in ("mnist", "fashion-mnist"):
        for split, file in (("train", "train"), ("test", "t10k")):
            images = gzip.decompress((folder / name / f"{file}-images-idx3-ubyte.gz").read_bytes())
            labels = gzip.decompress((folder / name / f"{file}-labels-idx1-ubyte.gz").read_bytes())
            pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
            save(out, f"{name}.{split}", pixels, np.frombuffer(labels, np.uint8, offset=8))
    batches = folder / "cifar-10" / "cifar-10-batches-bin"
    for file, split in [("test_batch", "test"), *((f"data_batch_{i + 1}", f"train{i}") for i in range(5))]:
        rows = np.fromfile(batches / f"{file}.bin", np.uint8).reshape(-1, 3073)
        save(out, f"cifar10.{split}", rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
