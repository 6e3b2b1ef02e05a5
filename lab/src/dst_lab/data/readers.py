"""From the bytes of a data set to arrays: the idx format, the CIFAR-10 format, scikit-learn's digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .catalogue import DataError

Bytes = npt.NDArray[np.uint8]

CIFAR_SHAPE = (3, 32, 32)


def read_idx(raw: bytes, dimensions: int, where: str) -> Bytes:
    """Return the array in an idx file: 00 00 08 (uint8), number of axes, big-endian uint32 lengths, values."""
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
    """Return images [N, 3, 32, 32] and labels [N] of a batch: records of one label byte, then the three planes."""
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if len(raw) % record:
        raise DataError(f"{where} is not a CIFAR-10 batch: expected records of {record} bytes, found {len(raw)} bytes")
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE).copy(), records[:, 0].copy()


def read_digits() -> tuple[Bytes, Bytes]:
    """Return all 1,797 images [N, 1, 8, 8] and labels [N] of scikit-learn's digits, in the package's order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError("digits come with scikit-learn: pip install 'dst-lab'") from error
    bunch: Any = load_digits()
    # Rounded down, so that a value v/16 at or below a threshold k/16 does not step over it.
    images = (bunch.images.astype(np.int64) * 255 // 16).astype(np.uint8)
    return images[:, None], bunch.target.astype(np.uint8)
