"""A run as it lies in the tables: what is written for a record, and what happens when it is already there."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.store.contents import blob, history
from dst_lab.store.disk.schema import FINGERPRINTS
from dst_lab.store.errors import StoreError
from dst_lab.store.record import Record, canonical, identify

Columns = tuple[str, str, str, int, str, str, str, bytes, str]
_COLUMNS = "id, task, estimator, seed, status, config, detail, digest, provenance"
_Series = Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""Steps and values of each metric."""

_FINAL = 2
_WEIGHT = {"failed": 0, "stopped": 1, "done": _FINAL, "diverged": _FINAL}
"""The heavier of two records of a run is kept."""


class Outcome(Enum):
    """What `insert` did."""

    ADDED = "added"
    REPLACED = "replaced"
    PRESENT = "present"
    COMPLETED = "completed"
    DIFFERS = "differs"

    @property
    def is_new(self) -> bool:
        """True where the row is now the record of its run."""
        return self in (Outcome.ADDED, Outcome.REPLACED)


@dataclass(frozen=True)
class StoredRow:
    """One run: its columns, in the order of the table, and its blobs."""

    columns: Columns
    provenance: str
    history: bytes
    artefacts: dict[str, bytes]
    bare: str = ""
    """A fingerprint of what a lean copy still has; empty where the run was recorded before there were any."""

    @property
    def id(self) -> str:
        return self.columns[0]

    @property
    def digest(self) -> str:
        """A fingerprint of what the run found, as text."""
        return self.columns[7].hex()

    def repacked(self) -> "StoredRow":
        """The same with blobs compressed as `encode` does it: those of a compressed store are not."""
        artefacts = {name: blob.repacked(body, blob.LEVEL) for name, body in self.artefacts.items()}
        return replace(self, history=blob.repacked(self.history, blob.LEVEL), artefacts=artefacts)

    @property
    def weight(self) -> int:
        """The heavier of two records of a run is kept."""
        return _WEIGHT.get(self.columns[4], -1)

    @property
    def is_final(self) -> bool:
        """True where the run needs no more training."""
        return self.weight == _FINAL

    def verify(self, *, whole: bool = False) -> None:
        """Raise ValueError, with the reason, where anything of the run is damaged.

        The config is known by the run's id, the provenance by its own, the blobs by their checksums, and all that the
        run found by its fingerprint. A lean copy has a run without its artefacts, of which that cannot be computed: it
        is compared where there are artefacts, and with `whole` in any case; the one of all but artefacts always.
        """
        try:
            self._verify(whole)
        except (TypeError, KeyError) as error:  # SQLite gives a damaged column another type
            raise ValueError(str(error)) from error

    def _verify(self, whole: bool) -> None:
        self._verify_parts()
        status, _, detail, digest, _ = self.columns[4:]
        if not isinstance(detail, str):
            raise ValueError("how it ended cannot be read")
        json.loads(detail)
        series = history.arrays(self.history)
        changed = (whole or self.artefacts) and _digest(status, detail, series, self._unpacked()) != digest
        if changed or (self.bare and self.bare != _bare(self.columns, series)):
            raise ValueError("what it found does not have the fingerprint it was recorded with")

    def _verify_parts(self) -> None:
        """The same without unpacking anything, and so without the fingerprint."""
        run, task, estimator, seed, status, text, _, digest, provenance = self.columns
        if not isinstance(text, str) or identify(text) != run:
            raise ValueError("its config does not belong to its id")
        config = json.loads(text)
        if (task, estimator, seed) != (config["task"], config["estimator"]["name"], config["seed"]):
            raise ValueError("its columns are not those of its config")
        if status not in _WEIGHT:
            raise ValueError(f"its status is {status!r}")
        if not isinstance(self.provenance, str) or identify(self.provenance) != provenance:
            raise ValueError("its provenance does not belong to its id")
        if not isinstance(self.history, bytes):
            raise ValueError("its history is gone")
        if not isinstance(digest, bytes):
            raise ValueError("its fingerprint is gone")
        for body in (self.history, *self.artefacts.values()):
            blob.verify(body)

    def damage(self) -> str:
        """What `verify` says; empty where the run is whole."""
        try:
            self.verify()
        except ValueError as error:
            return str(error)
        return ""

    @property
    def name(self) -> str:
        """The run in a person's words, as far as its row can be read."""
        run, task, estimator, seed = self.columns[:4]
        taus = ""
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            values = json.loads(self.columns[5])["estimator"].items()
            taus = "".join(f" {name}={value}" for name, value in values if name != "name")
        return f"{task} {estimator}{taus} seed={seed} ({run})"

    def _unpacked(self) -> dict[str, npt.NDArray[Any]]:
        """Its artefacts."""
        return {name: array for body in self.artefacts.values() for name, array in blob.unpack(body).items()}


def encode(record: Record) -> StoredRow:
    """The row of a record."""
    config, detail, provenance = canonical(record.config), _json(record.detail), _json(record.provenance)
    series = {name: (one.steps, one.values) for name, one in record.history.items()}
    arrays = {name: np.asarray(array) for name, array in record.artefacts.items()}
    columns = (
        record.run_id,
        str(record.config["task"]),
        str(record.config["estimator"]["name"]),
        int(record.config["seed"]),
        record.status,
        config,
        detail,
        _digest(record.status, detail, series, arrays),
        identify(provenance),
    )
    artefacts = {name: blob.pack({name: array}) for name, array in arrays.items()}
    return StoredRow(columns, provenance, history.pack(record.history), artefacts, _bare(columns, series))


def insert(connection: sqlite3.Connection, row: StoredRow, *, prefer_new: bool = False) -> Outcome:
    """Write the row, inside the caller's transaction. The first result of a run stays; a failure gives way, and so does
    a run that was stopped, to one that was trained whole. `prefer_new`: another final result takes its place. An equal
    one completes what a lean copy left out."""
    existing = connection.execute("SELECT key, config, status, digest FROM runs WHERE id = ?", (row.id,)).fetchone()
    if existing is not None:
        key, config, status, digest = existing
        new_status, new_config, new_digest = row.columns[4], row.columns[5], row.columns[7]
        if config != new_config:
            raise StoreError(
                f"two configs share the run id {row.id}: {config} and {new_config}. Change a field of one."
            )
        if _WEIGHT[new_status] <= _WEIGHT[status]:
            # What is not final says nothing against what is there.
            same = digest == new_digest or _WEIGHT[new_status] < _FINAL
            if digest == new_digest and row.artefacts and not _has_artefacts(connection, key):
                _insert_artefacts(connection, key, row)
                return Outcome.COMPLETED
            if same or not prefer_new:
                return Outcome.PRESENT if same else Outcome.DIFFERS
        connection.execute("DELETE FROM runs WHERE key = ?", (key,))
    connection.execute("INSERT OR IGNORE INTO provenance VALUES (?, ?)", (row.columns[8], row.provenance))
    key = connection.execute(f"INSERT INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row.columns).lastrowid
    connection.execute("INSERT INTO histories VALUES (?, ?)", (key, row.history))
    _insert_artefacts(connection, key, row)
    if row.bare:
        connection.execute(FINGERPRINTS)  # a store of an older version has none
        connection.execute("INSERT INTO bare_fingerprints VALUES (?, ?)", (key, row.bare))
    if existing is None:
        return Outcome.ADDED
    connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")
    return Outcome.REPLACED


def _has_artefacts(connection: sqlite3.Connection, key: int) -> bool:
    return connection.execute("SELECT 1 FROM artefacts WHERE run = ?", (key,)).fetchone() is not None


def _insert_artefacts(connection: sqlite3.Connection, key: int | None, row: StoredRow) -> None:
    bodies = [(key, name, body) for name, body in row.artefacts.items()]
    connection.executemany("INSERT INTO artefacts VALUES (?, ?, ?)", bodies)


def read_all(connection: sqlite3.Connection) -> Iterator[StoredRow]:
    """Every run of a store, one at a time, in the order they were recorded."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'bare_fingerprints'").fetchone()
    bare = "(SELECT body FROM bare_fingerprints WHERE run = runs.key)" if known else "NULL"
    listing = connection.execute(
        f"SELECT key, {_COLUMNS}, (SELECT body FROM provenance WHERE id = runs.provenance), "
        f"(SELECT body FROM histories WHERE run = runs.key), {bare} FROM runs ORDER BY key"
    )
    for key, *columns, provenance, body, fingerprint in listing:
        artefacts = connection.execute("SELECT name, body FROM artefacts WHERE run = ?", (key,)).fetchall()
        yield StoredRow(tuple(columns), provenance, body, dict(artefacts), fingerprint or "")


def damaged(connection: sqlite3.Connection) -> Iterator[tuple[StoredRow, str]]:
    """The runs that are damaged, and how; of a file that does not hold together, as far as it can be read."""
    try:
        for row in read_all(connection):
            if why := row.damage():
                yield row, why
    except sqlite3.OperationalError:
        raise  # it is busy, or cannot be read at all
    except sqlite3.DatabaseError:
        return


def _json(values: Mapping[str, Any]) -> str:
    """Text of a detail or a provenance. NaN is allowed: the last loss of a diverged run often is one."""
    try:
        return json.dumps(values, sort_keys=True, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise StoreError(f"detail and provenance hold what JSON can ({error}): got {values!r}") from error


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not text, a number, a list or a dictionary")


def _bare(columns: Columns, series: _Series) -> str:
    """A fingerprint of what a run found but its artefacts, and of the fingerprint of it all."""
    status, _, detail, digest, _ = columns[4:]
    return hashlib.sha256(digest + _digest(status, detail, series, {})).hexdigest()[:16]


def _digest(status: str, detail: str, series: _Series, artefacts: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A fingerprint of what the run found, apart from where and when it ran and from how it is compressed."""
    digest = hashlib.sha256(f"{status}\n{detail}\n".encode())
    arrays = {f"history/{name}": values for name, (_, values) in series.items()}
    arrays |= {f"steps/{name}": steps for name, (steps, _) in series.items()}
    arrays |= {f"artefacts/{name}": array for name, array in artefacts.items()}
    for name, array in sorted(arrays.items()):
        plain = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {plain.dtype.str} {plain.shape}\n".encode() + plain.tobytes())
    return digest.digest()[:16]
