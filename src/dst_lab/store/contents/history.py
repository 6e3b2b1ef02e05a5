"""The history of a run as one blob: each axis of steps once, then the metrics that were recorded along it."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from dst_lab.store.contents import blob
from dst_lab.store.record import Series


def pack(history: Mapping[str, Series]) -> bytes:
    """One blob; the metric `loss` on the third axis is the array `2:loss`, and that axis itself is `2:`."""
    axes: dict[bytes, int] = {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, series in history.items():
        axis = axes.setdefault(series.steps.tobytes(), len(axes))
        arrays.setdefault(f"{axis}:", series.steps)
        arrays[f"{axis}:{name}"] = series.values
    return blob.pack(arrays)


def unpack(body: bytes) -> dict[str, Series]:
    """What `pack` packed; ValueError, with the reason, where the blob is damaged."""
    arrays = blob.unpack(body)
    history = {}
    for key, values in arrays.items():
        axis, _, name = key.partition(":")
        if name:
            history[name] = Series(arrays[f"{axis}:"], values)
    return history
