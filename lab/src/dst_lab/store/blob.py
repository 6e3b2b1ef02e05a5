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

from dst_lab.store.record import Series

_HEAD = struct.Struct("<3sBI")
_LENGTH = struct.Struct("<I")
_MAGIC, _VERSION = b"dst", 1
_DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"])
LEVEL = 9
"""zlib's level for a blob that nothing compresses again."""


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
            as_bytes = array.reshape(-1, 1).view(np.uint8).reshape(array.size, array.dtype.itemsize)
            planes.append(as_bytes.T.tobytes())
    listing = json.dumps(index, separators=(",", ":")).encode()
    return _sealed(_LENGTH.pack(len(listing)) + listing + b"".join(planes), LEVEL)


def repacked(blob: bytes, level: int) -> bytes:
    """A blob of the same arrays, compressed at another level: 0 where the whole file is compressed afterwards."""
    return _sealed(_opened(blob), level)


def unpack(blob: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a blob; ValueError, with the reason, where it is damaged."""
    raw = _opened(blob)
    try:
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
    except (struct.error, TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    return arrays


def pack_history(history: Mapping[str, Series]) -> bytes:
    """One blob of several series: the metric `loss` on the third axis of steps is the array `2:loss`, and that axis
    itself, which other metrics share, is `2:`."""
    axes: dict[bytes, int] = {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, series in history.items():
        axis = axes.setdefault(series.steps.tobytes(), len(axes))
        arrays.setdefault(f"{axis}:", series.steps)
        arrays[f"{axis}:{name}"] = series.values
    return pack(arrays)


def unpack_history(blob: bytes) -> dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """The steps and values of each metric, not yet checked to be a `Series`."""
    arrays = unpack(blob)
    try:
        parts = [(key.partition(":"), values) for key, values in arrays.items()]
        return {name: (arrays[f"{axis}:"], values) for (axis, _, name), values in parts if name}
    except KeyError as error:
        raise ValueError(f"it has no steps {error}") from error


def _sealed(raw: bytes, level: int) -> bytes:
    body = zlib.compress(raw, level)
    return _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def _opened(blob: bytes) -> bytes:
    """What `_sealed` was given; ValueError, with the reason, where the blob is damaged or of another version."""
    if len(blob) < _HEAD.size:
        raise ValueError(f"{len(blob)} bytes are too few")
    magic, version, checksum = _HEAD.unpack_from(blob)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise ValueError(f"its version is {version}, and version {_VERSION} is read here: upgrade dst-lab")
    body = blob[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum does not match")
    return zlib.decompress(body)


def _even_range(array: npt.NDArray[Any]) -> list[int]:
    """First value and stride of an evenly spaced int64 vector, else nothing."""
    if array.dtype.str != "<i8" or array.ndim != 1 or array.size < 2:
        return []
    first, stride = int(array[0]), int(array[1]) - int(array[0])
    is_even = bool(np.all(np.diff(array) == stride)) and max(abs(first), abs(int(array[-1])), abs(stride)) < 2**62
    return [first, stride] if is_even else []
