"""Bringing the healthy runs out of a damaged store."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from dst_lab.replace import STORE, check_target, resolved
from dst_lab.store.contents import blob, networks, notes, rows
from dst_lab.store.contents.arrivals import Arrivals, arriving_with
from dst_lab.store.disk.compressed import is_compressed, unpack_as_far_as_possible
from dst_lab.store.disk.connection import damage_found
from dst_lab.store.disk.header import missing_bytes
from dst_lab.store.disk.lock import Lock
from dst_lab.store.disk.pages import Cell, cells
from dst_lab.store.disk.schema import PAGE_SIZE, create
from dst_lab.store.disk.side_files import replacing_store, side_files
from dst_lab.store.errors import StoreError, explained
from dst_lab.store.record import identify
from dst_lab.store.transfer.merging import insert_all

# SQLite quotes bytes of a damaged schema in what it says; where they are no text, Python raises ValueError.
_UNTOLD = (sqlite3.Error, ValueError)


@dataclass(frozen=True)
class Salvage:
    """What came out of a damaged store."""

    saved: int
    lost: Mapping[str, str]
    """Runs that did not come out, and those whose artefacts or network are damaged and did not: who, and why."""
    bare: int = 0
    """Runs that came out without the artefacts they were recorded with: lost, or left out before, by a lean copy."""
    damage: str = ""
    """What is wrong with the file as a whole: where something is, runs may be lost that nothing names any more."""


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str], *, overwrite: bool = False) -> Salvage:
    """Write a new store at `target` with every run of the store at `source` that is whole; `source` stays as it is.

    The file is read page by page, so that neither a damaged row nor a destroyed page keeps the others from being read.
    Each run is verified before it is written: its config by its id, its history and artefacts by their checksums, all
    of it by its fingerprint. A compressed store is unpacked as far as it goes. Networks that were kept come along.
    """
    with explained(Path(target)):
        file = resolved(target)
        if is_compressed(file):
            raise StoreError(f"{file}: a salvage writes a plain store; compress it afterwards, with `dst copy`.")
    origin = resolved(source)
    if origin.exists() and file.exists() and file.samefile(origin):
        raise StoreError(f"{file} is the damaged store itself: a salvage needs another path.")
    with explained(file):
        check_target(file, STORE, overwrite=overwrite)
    if origin.is_dir():
        raise StoreError(
            f"{source} is a folder: salvage the one store in it that is damaged, and put what comes out there."
        )
    raw, damage = _content(origin)
    cells_found = _Found.of(cells(raw, PAGE_SIZE))
    if not (cells_found.runs or cells_found.histories):
        raise StoreError(f"{source}: nothing of a dst store was found in it.")
    healthy, lost = cells_found.assembled()
    for row in healthy:
        if row.id in cells_found.lost_notes and row.id not in cells_found.notes:
            lost[f"the note on {row.name}"] = _reads(cells_found.lost_notes[row.id])
    known = {str(columns[0]) for _, columns in cells_found.runs}
    for run, body in cells_found.lost_notes.items():
        if run not in known:
            lost[f"a note on no run that is known ({run!a})"] = _reads(body)
    lock = Lock(file)
    try:
        with explained(file), arriving_with(file) as arriving:
            if file.exists():
                arriving.clear({row.id: row.digest for row in healthy})
            with replacing_store(file) as draft:
                create(draft)
                insert_all(draft, healthy, cells_found.notes)
                kept = networks.kept(origin, [row.id for row in healthy])
                lost |= {name: why for row in healthy if row.id in kept for name, why in _carry(origin, arriving, row)}
                arriving.place()
    finally:
        lock.release()
    return Salvage(len(healthy), lost, sum(not row.artefacts and not _is_whole(row) for row in healthy), damage)


def _reads(note: str) -> str:
    return f"it is damaged, and reads {note.encode(errors='replace').decode()!r}"


def _carry(source: Path, arriving: Arrivals, row: rows.StoredRow) -> Iterator[tuple[str, str]]:
    """Carry the network of a run; where it is damaged, whose it is, and why it stays."""
    try:
        network = networks.read_for(source, row.id, row.digest)
    except StoreError as error:
        yield f"the network of {row.name}", str(error)
        return
    arriving.add(network)


def _is_whole(row: rows.StoredRow) -> bool:
    try:
        row.verify(whole=True)
    except ValueError:
        return False
    return True


def _content(path: Path) -> tuple[bytes, str]:
    """The file, with its log folded in where there is one and SQLite can, a compressed one as far as it unpacks; and
    what is wrong with it."""
    try:
        with TemporaryDirectory(prefix="dst-") as folder:
            copy = Path(folder) / "store"
            if is_compressed(path):
                unpack_as_far_as_possible(path, copy)
            else:
                shutil.copyfile(path, copy)
            for side, beside in zip(side_files(path), side_files(copy), strict=True):
                if side.exists():
                    shutil.copyfile(side, beside)
            if any(side.exists() for side in side_files(copy)):
                with suppress(*_UNTOLD), closing(sqlite3.connect(copy)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return copy.read_bytes(), _damage(copy)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error


def _damage(path: Path) -> str:
    if missing := missing_bytes(path):
        return f"the file was cut short, {missing} bytes are missing at its end"
    try:
        with closing(sqlite3.connect(path)) as connection:
            finding = damage_found(connection)
    except _UNTOLD as error:
        finding = str(error)
    return f"its pages do not fit together ({finding})" if finding else ""


@dataclass
class _Found:
    """Rows of the tables, by the key that joins them; several of a key where old ones were left on free pages."""

    runs: list[tuple[int, rows.Columns]] = field(default_factory=list)
    histories: dict[int, list[bytes]] = field(default_factory=dict)
    artefacts: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    fingerprints: dict[int, list[str]] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    lost_notes: dict[str, str] = field(default_factory=dict)
    """What is left of notes that are not whole."""

    @classmethod
    def of(cls, recovered: Iterable[Cell]) -> "_Found":
        """Each row to its table, told by its columns."""
        tables = cls()
        for key, columns in recovered:
            match columns:
                case (None, str(run), *_) if key is not None and len(columns) == 10 and len(run) == 16:
                    tables.runs.append((key, cast(rows.Columns, columns[1:])))
                case (None, bytes(body)) if key is not None:
                    tables.histories.setdefault(key, []).append(body)
                case (None, str(fingerprint)) if key is not None:
                    tables.fingerprints.setdefault(key, []).append(fingerprint)
                case (int(run), str(name), bytes(body)) if key is not None:
                    tables.artefacts.setdefault(run, []).append((_name_inside(body) or name, body))
                case (str(run), str(body)) if key is None:
                    with suppress(UnicodeEncodeError):  # bytes that are no text any more
                        if identify(body) == run:
                            tables.provenance[run] = body
                case (str(run), str(body), str(fingerprint)) if key is None and len(run) == 16:
                    whole = notes.is_whole(run, body, fingerprint)
                    (tables.notes if whole else tables.lost_notes)[run] = body
        return tables

    def assembled(self) -> tuple[list[rows.StoredRow], dict[str, str]]:
        """The runs that are whole, in the order they were recorded, and what is wrong with the others."""
        healthy: dict[str, tuple[int, rows.StoredRow]] = {}
        lost: dict[str, tuple[str, str]] = {}
        for key, columns in self.runs:
            run = str(columns[0])
            try:
                row, lacks = self._row(key, columns)
            except ValueError as error:
                lost.setdefault(run, (rows.StoredRow(columns, "", b"", {}).name, str(error)))
                continue
            # Of two that weigh the same the later one: the first gave way to it.
            if run not in healthy or (row.weight, key) > (healthy[run][1].weight, healthy[run][0]):
                healthy[run] = (key, row)
                if lacks:
                    what = f"{row.name}, without its {' and '.join(lacks)}"
                    lost[run] = (what, "; ".join(lacks.values()))
                else:
                    lost.pop(run, None)
        named = {name: why for run, (name, why) in lost.items() if run not in healthy or "without" in name}
        known = {key for key, _ in self.runs}
        if orphans := sum(key not in known for key in self.histories):
            named[f"{orphans} more"] = "their histories are there, but not the rows that say whose they are"
        return [row for _, row in sorted(healthy.values(), key=lambda pair: pair[0])], named

    def _row(self, key: int, columns: rows.Columns) -> tuple[rows.StoredRow, dict[str, str]]:
        """The run with what belongs to it, and what it lacks with the reason; ValueError where it is lost.

        Damaged provenance, which all runs of a chunk share, is replaced by a word: what they found is as it was.
        """
        bodies = self.histories.get(key, [])
        if not bodies:
            raise ValueError("its history is gone")
        provenance, lacks = self.provenance.get(str(columns[8])), dict[str, str]()
        if provenance is None:
            lacks["provenance"] = "where and when it was trained cannot be read"
            provenance = json.dumps({"lost": str(columns[8])})
            columns = (*columns[:8], identify(provenance))
        artefacts, fingerprints = dict(self.artefacts.get(key, [])), self.fingerprints.get(key, [])
        tries = [
            *((artefacts, bare, False) for bare in fingerprints or [""]),
            *((artefacts, "", True) for _ in fingerprints),
            *(({}, bare, not bare and len(bodies) > 1) for bare in fingerprints or [""]),
        ]
        reason = ""
        for kept, bare, whole in tries:
            for body in bodies:
                row = rows.StoredRow(columns, provenance, body, kept, bare)
                try:
                    row.verify(whole=whole)
                    return row.fingerprinted(), lacks | ({"artefacts": reason} if artefacts and not kept else {})
                except ValueError as error:
                    reason = reason or str(error)
        raise ValueError(reason)


def _name_inside(body: bytes) -> str:
    """The name of an artefact as its body has it, checked, where its column may be damaged; "" where the body is."""
    try:
        return next(iter(blob.unpack(body)), "")
    except ValueError:
        return ""
