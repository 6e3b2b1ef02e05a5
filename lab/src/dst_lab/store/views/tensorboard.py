"""The metrics of a store as TensorBoard's event files, one folder per run. Needs neither TensorBoard nor TensorFlow.

An event file is a sequence of records (length, its checksum, an `Event` in protocol buffers, its checksum), where
checksums are masked CRC-32C. Values become float32, which is all that TensorBoard keeps of them.
"""

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from dst_lab.replace import TENSORBOARD, WriteError, check_target, draft_folder, put_in_place, write_bytes, write_text
from dst_lab.shown import shown
from dst_lab.store.errors import StoreError
from dst_lab.store.record import Run, Series, identify
from dst_lab.store.store import Store
from dst_lab.store.views.temperatures import temperatures, told_by

FILE = "events.out.tfevents.0.dst"
ABOUT = "dst-export.txt"
_DRAFT = "dst-export"
_EVENTS = "events"
"""The name of an event file until it is in its place: TensorBoard, which may be watching, does not know it by that."""
LONGEST = 200
"""Bytes in the name of a folder: file systems take 255, drafts of files add to theirs."""


def export_tensorboard(store: Store, out: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write every metric of every run below the folder `out`, and return the number of values.

    A run lies in TASK/ESTIMATOR tau_f=.. tau_b=../seed=.. ID, so that TensorBoard groups and filters by name; its
    config is beside it, with the defaults that a record leaves out, in config.json, and a note on it in note.txt. An
    earlier export is replaced, once all of this one is written. A folder that holds anything else is left alone, unless
    `overwrite`.
    """
    folder = Path(out).expanduser()
    try:
        with _room(folder, overwrite), draft_folder(folder / _DRAFT) as draft:
            count = _write(store, draft)
            write_text(folder / ABOUT, f"{TENSORBOARD.mark.decode()}: tensorboard --logdir THIS FOLDER\n")
            _replace(folder, draft)
    except WriteError as error:
        raise StoreError(str(error)) from error
    except OSError as error:
        raise StoreError(f"{error.filename or folder} could not be written ({error.strerror or error}).") from error
    return count


def _write(store: Store, folder: Path) -> int:
    count, notes = 0, store.notes()
    for run in store.runs():
        place = folder.joinpath(*map(_safe, _names(run)))
        place.mkdir(parents=True, exist_ok=True)
        history = store.history(run.id)
        write_bytes(place / _EVENTS, events(history, _started(store.provenance(run.id))))
        write_text(place / "config.json", json.dumps(run.fields, indent=1) + "\n")
        if run.id in notes:
            write_text(place / "note.txt", shown(notes[run.id]) + "\n")
        count += sum(series.values.size for series in history.values())
    return count


def events(history: Mapping[str, Series], started: float) -> bytes:
    """An event file: one event per step, with the values that were measured at it."""
    values: dict[int, list[bytes]] = {}
    for name, series in history.items():
        for metric, column in series.components(name):
            tag = _text(1, metric)
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
                small = column.astype(np.float64).astype(np.float32)
            for step, value in zip(series.steps.tolist(), small.tolist(), strict=True):
                values.setdefault(step, []).append(_bytes(1, tag + b"\x15" + struct.pack("<f", value)))
    head = b"\x09" + struct.pack("<d", started)
    first = head + _text(3, "brain.Event:2")
    others = [head + b"\x10" + _varint(step) + _bytes(5, b"".join(values[step])) for step in sorted(values)]
    return b"".join(map(_record, (first, *others)))


@contextmanager
def _room(folder: Path, overwrite: bool) -> Iterator[None]:
    """The folder, if need be a new one, which goes again where nothing comes of it."""
    if folder.is_file():
        raise StoreError(f"{folder} is a file: event files go into a folder, so give the path of one.")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite and not (folder / ABOUT).exists():
        raise StoreError(
            f"{folder} is a folder with other things in it: give another path, or export into it with --overwrite "
            "(overwrite=True)."
        )
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    check_target(folder / ABOUT, TENSORBOARD, overwrite=overwrite)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _replace(folder: Path, draft: Path) -> None:
    """Move what was written into its places, then remove what is left of an earlier export."""
    before, now = list(_exported(folder)), set()
    for part in [path for path in draft.rglob("*") if path.is_file()]:
        place = folder / part.relative_to(draft)
        target = place.with_name(FILE) if place.name == _EVENTS else place
        target.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(part, target)
        now.add(target)
    for old in before:
        with suppress(OSError):
            for path in (old, *(old.with_name(beside) for beside in ("config.json", "note.txt"))):
                if path not in now:
                    path.unlink(missing_ok=True)
            old.parent.rmdir()


def _exported(folder: Path) -> Iterator[Path]:
    """The event files of an earlier export, but not those of another one that lies below."""
    for place, below, files in os.walk(folder):
        below[:] = [name for name in below if not Path(place, name, ABOUT).exists()]
        if FILE in files:
            yield Path(place, FILE)


def _names(run: Run) -> tuple[str, str, str]:
    tau = temperatures(run.config["estimator"])
    given = {name: f"{value:g}" for name, value in (("tau_f", tau.tau_f), ("tau_b", tau.tau_b)) if value is not None}
    # What moves goes by its whole course: a run that begins at 2 is not one of those that stay there.
    given |= dict(part.split("=", 1) for part in tau.schedule.split(";") if "=" in part)
    told = {name: given[name] for name in ("tau_f", "tau_b") if name in given}
    estimator = run.config["estimator"]
    told |= {name: value for name, value in estimator.items() if name not in ("name", *told_by(estimator))}
    return (
        run.task,
        " ".join([run.estimator, *(f"{name}={value}" for name, value in told.items())]),
        f"seed={run.seed} {run.id}",
    )


def _safe(name: str) -> str:
    """A name that is one folder, whatever the store says; of a very long one the beginning, and a hash of all."""
    safe = re.sub(r"[^\w.= +-]", "_", name).strip(". ") or "_"
    if len(safe.encode()) <= LONGEST:
        return safe
    return f"{safe.encode()[: LONGEST - 18].decode(errors='ignore')}..{identify(name)}"


def _started(provenance: Mapping[str, Any]) -> float:
    with suppress(KeyError, TypeError, ValueError):
        moment = datetime.strptime(str(provenance["started"]), "%Y-%m-%dT%H:%M:%SZ")
        return moment.replace(tzinfo=timezone.utc).timestamp()
    return 0.0


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _bytes(number: int, content: bytes) -> bytes:
    """A field of a message that holds bytes, text or another message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked(length)) + content + struct.pack("<I", masked(content))


def masked(content: bytes) -> int:
    """The checksum of TensorFlow's records: CRC-32C, rotated and shifted."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _table()
