"""Named arrays as one compact blob. Reading one runs nothing: no pickle, and a checksum before anything else.

A blob is a head (magic, version, CRC-32 of the rest), then zlib over: a length, a JSON list of
`[name, dtype, shape]`, and the bytes of each array with its planes apart (all first bytes, all second bytes, ..):
the exponents of a slowly changing metric then lie side by side and compress, where interleaved they would not.
An even range of int64, such as the steps of a run, is `[name, dtype, shape, first, stride]` and takes no bytes.
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_HEAD = struct.Struct("<3sBI")
_LENGTH = struct.Struct("<I")
_MAGIC, _VERSION = b"dst", 1
LEVEL = 9
"""The compression of a blob that nothing compresses again."""
_DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"])


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The blob of these arrays, in their order. Numbers, signs of zero and NaN payloads are kept bit for bit."""
    index: list[list[Any]] = []
    planes: list[bytes] = []
    for name, given in arrays.items():
        array = np.asarray(given)
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        if array.dtype.str not in _DTYPES:
            raise ValueError(f"array {name!r} has dtype {array.dtype}: expected booleans, integers or floats")
        span = _even_range(array)
        index.append([name, array.dtype.str, list(array.shape), *span])
        if not span:
            planes.append(_as_bytes(array).T.tobytes())
    listing = json.dumps(index, separators=(",", ":")).encode()
    body = zlib.compress(_LENGTH.pack(len(listing)) + listing + b"".join(planes), level=LEVEL)
    return _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def repacked(blob: bytes, level: int) -> bytes:
    """The same arrays, compressed at another level: 0 leaves it to whoever compresses the whole file."""
    verify(blob)
    body = zlib.compress(zlib.decompress(blob[_HEAD.size :]), level)
    return _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def verify(blob: bytes) -> None:
    """Raise ValueError, with the reason, unless `blob` is whole and of a version that is read here."""
    if len(blob) < _HEAD.size:
        raise ValueError(f"{len(blob)} bytes are too few")
    magic, version, checksum = _HEAD.unpack_from(blob)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise ValueError(f"its version is {version}, and version {_VERSION} is read here: upgrade dst-lab")
    if zlib.crc32(memoryview(blob)[_HEAD.size :]) != checksum:
        raise ValueError("its checksum does not match")


def unpack(blob: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a blob; ValueError, with the reason, where it is damaged."""
    verify(blob)
    try:
        raw = zlib.decompress(blob[_HEAD.size :])
        (length,) = _LENGTH.unpack_from(raw)
        start = _LENGTH.size + length
        index = json.loads(raw[_LENGTH.size : start])
        data = np.frombuffer(raw, np.uint8, offset=start) if start < len(raw) else np.empty(0, np.uint8)
        arrays = {}
        for name, code, shape, *span in index:
            if code not in _DTYPES:
                raise ValueError(f"array {name!r} has the unknown dtype {code!r}")
            dtype, size = np.dtype(code), math.prod(shape)
            if span:
                arrays[name] = span[0] + span[1] * np.arange(size, dtype=np.int64)
                continue
            taken, data = data[: size * dtype.itemsize], data[size * dtype.itemsize :]
            arrays[name] = taken.reshape(dtype.itemsize, size).T.copy().view(dtype).reshape(shape)
    except (zlib.error, struct.error, TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    return arrays


def _as_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return array.reshape(-1, 1).view(np.uint8).reshape(array.size, array.dtype.itemsize)


def _even_range(array: npt.NDArray[Any]) -> list[int]:
    """First value and stride of an evenly spaced int64 vector, else nothing."""
    if array.dtype.str != "<i8" or array.ndim != 1 or array.size < 2:
        return []
    first, stride = int(array[0]), int(array[1]) - int(array[0])
    even = bool(np.all(np.diff(array) == stride)) and max(abs(first), abs(int(array[-1])), abs(stride)) < 2**62
    return [first, stride] if even else []
