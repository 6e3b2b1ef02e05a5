"""A run as it lies in the tables: how a record is written, verified, and what happens where its run is there already.

Every row can be verified by itself: the config by the run's id, the provenance by its own id, and all that the run
found by a fingerprint (`digest`), so that a flipped bit is found before it spreads.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.runs import canonical, identify
from dst_lab.store import blob
from dst_lab.store.errors import StoreError
from dst_lab.store.record import Record

# Plain tables with checks, not STRICT ones: SQLite before 3.37 cannot even open a file that has a STRICT table.
SCHEMA = """
CREATE TABLE provenance (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL CHECK (typeof(body) = 'text')
) WITHOUT ROWID;

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK (length(id) = 16),
    task TEXT NOT NULL,
    estimator TEXT NOT NULL,
    seed INTEGER NOT NULL CHECK (typeof(seed) = 'integer'),
    status TEXT NOT NULL CHECK (status IN ('done', 'diverged', 'failed', 'stopped')),
    config TEXT NOT NULL CHECK (typeof(config) = 'text'),
    detail TEXT NOT NULL CHECK (typeof(detail) = 'text'),
    digest BLOB NOT NULL CHECK (typeof(digest) = 'blob'),
    provenance TEXT NOT NULL REFERENCES provenance (id)
);

CREATE TABLE histories (
    run INTEGER PRIMARY KEY REFERENCES runs (key) ON DELETE CASCADE,
    body BLOB NOT NULL CHECK (typeof(body) = 'blob')
);

CREATE TABLE artefacts (
    run INTEGER NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    body BLOB NOT NULL CHECK (typeof(body) = 'blob'),
    PRIMARY KEY (run, name)
);

"""
BARE_FINGERPRINTS = """
CREATE TABLE IF NOT EXISTS bare_fingerprints (
    run INTEGER PRIMARY KEY REFERENCES runs (key) ON DELETE CASCADE,
    body TEXT NOT NULL CHECK (typeof(body) = 'text')
);
"""
"""Stores of earlier versions lack this table."""

FINAL = 2
WEIGHT = {"failed": 0, "stopped": 1, "done": FINAL, "diverged": FINAL}
"""The heavier of two records of a run is kept."""


class Outcome(Enum):
    """What `insert` did."""

    ADDED = "added"
    REPLACED = "replaced"
    PRESENT = "present"
    COMPLETED = "completed"
    DIFFERS = "differs"


@dataclass(frozen=True)
class StoredRow:
    """One run as it is stored."""

    id: str
    task: str
    estimator: str
    seed: int
    status: str
    config: str
    detail: str
    digest: bytes
    """A fingerprint of what the run found."""
    provenance_id: str
    provenance: str
    history: bytes
    artefacts: dict[str, bytes]
    bare: str = ""
    """A fingerprint of what a run has besides artefacts, where a lean copy may have left those out. Stores of earlier
    versions may have none."""

    def repacked(self, level: int) -> "StoredRow":
        """The row with its blobs compressed at another level."""
        artefacts = {name: blob.repacked(body, level) for name, body in self.artefacts.items()}
        return replace(self, history=blob.repacked(self.history, level), artefacts=artefacts)

    def without_artefacts(self) -> "StoredRow":
        """The row as a lean copy has it."""
        found = _digest(self.status, self.detail, blob.unpack_history(self.history), {})
        return replace(self, artefacts={}, bare=self.bare or _bare(self.digest, found))

    def verify(self) -> None:
        """Raise ValueError, with the reason, where anything of the run is damaged."""
        try:
            if identify(self.config) != self.id:
                raise ValueError("its config does not belong to its id")
            config = json.loads(self.config)
            if (self.task, self.estimator, self.seed) != (config["task"], config["estimator"]["name"], config["seed"]):
                raise ValueError("its columns are not those of its config")
            if self.status not in WEIGHT:
                raise ValueError(f"its status is {self.status!r}")
            if identify(self.provenance) != self.provenance_id:
                raise ValueError("its provenance does not belong to its id")
            arrays = {name: array for body in self.artefacts.values() for name, array in blob.unpack(body).items()}
            found = _digest(self.status, self.detail, blob.unpack_history(self.history), arrays)
            is_whole = found == self.digest if arrays else self.bare in ("", _bare(self.digest, found))
            if not is_whole:
                raise ValueError("what it found does not have the fingerprint it was recorded with")
        except (TypeError, KeyError, AttributeError) as error:  # SQLite gives a damaged column another type
            raise ValueError(str(error)) from error


def encode(record: Record) -> StoredRow:
    """The row of a record."""
    detail, provenance = _json(record.detail), _json(record.provenance)
    series = {name: (one.steps, one.values) for name, one in record.history.items()}
    arrays = {name: np.asarray(array) for name, array in record.artefacts.items()}
    digest = _digest(record.status, detail, series, arrays)
    return StoredRow(
        id=record.run_id,
        task=str(record.config["task"]),
        estimator=str(record.config["estimator"]["name"]),
        seed=int(record.config["seed"]),
        status=record.status,
        config=canonical(record.config),
        detail=detail,
        digest=digest,
        provenance_id=identify(provenance),
        provenance=provenance,
        history=blob.pack_history(record.history),
        artefacts={name: blob.pack({name: array}) for name, array in arrays.items()},
        bare="" if arrays else _bare(digest, digest),
    )


def insert(connection: sqlite3.Connection, row: StoredRow, *, prefer_new: bool = False) -> Outcome:
    """Write the row, inside the caller's transaction.

    The first result of a run stays. A failed run gives way to a stopped one, and both to one that is done or diverged.
    With `prefer_new`, another final result takes the place of a final one. An equal row completes what a lean copy left
    out.
    """
    existing = connection.execute("SELECT key, config, status, digest FROM runs WHERE id = ?", (row.id,)).fetchone()
    if existing is not None:
        key, config, status, digest = existing
        if config != row.config:
            raise StoreError(
                f"two configs share the run id {row.id}: {config} and {row.config}. Change a field of one."
            )
        if WEIGHT[row.status] <= WEIGHT[status]:
            has_artefacts = connection.execute("SELECT 1 FROM artefacts WHERE run = ?", (key,)).fetchone()
            if digest == row.digest and row.artefacts and not has_artefacts:
                _insert_artefacts(connection, key, row)
                return Outcome.COMPLETED
            # A run that is not final says nothing against the one that is there.
            if digest == row.digest or WEIGHT[row.status] < FINAL:
                return Outcome.PRESENT
            if not prefer_new:
                return Outcome.DIFFERS
        connection.execute("DELETE FROM runs WHERE key = ?", (key,))
    connection.execute("INSERT OR IGNORE INTO provenance VALUES (?, ?)", (row.provenance_id, row.provenance))
    key = connection.execute("INSERT INTO runs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row)[:9]).lastrowid
    connection.execute("INSERT INTO histories VALUES (?, ?)", (key, row.history))
    _insert_artefacts(connection, key, row)
    if row.bare:
        connection.execute("INSERT INTO bare_fingerprints VALUES (?, ?)", (key, row.bare))
    if existing is None:
        return Outcome.ADDED
    connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")
    return Outcome.REPLACED


def read_all(connection: sqlite3.Connection) -> Iterator[StoredRow]:
    """Every run of a store, in the order of recording, as it lies there: `verify` says whether it is whole."""
    has_bare = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'bare_fingerprints'").fetchone()
    bare = "coalesce((SELECT body FROM bare_fingerprints WHERE run = runs.key), '')" if has_bare else "''"
    listing = connection.execute(
        "SELECT key, id, task, estimator, seed, status, config, detail, digest, provenance, "
        "(SELECT body FROM provenance WHERE id = runs.provenance), "
        f"(SELECT body FROM histories WHERE run = runs.key), {bare} FROM runs ORDER BY key"
    )
    for key, *columns, fingerprint in listing:
        artefacts = connection.execute("SELECT name, body FROM artefacts WHERE run = ? ORDER BY rowid", (key,))
        columns += [dict(artefacts.fetchall()), fingerprint]
        yield StoredRow(*columns)


def _insert_artefacts(connection: sqlite3.Connection, key: int | None, row: StoredRow) -> None:
    bodies = [(key, name, body) for name, body in row.artefacts.items()]
    connection.executemany("INSERT INTO artefacts VALUES (?, ?, ?)", bodies)


def _json(values: Mapping[str, Any]) -> str:
    """The text of a detail or a provenance. NaN is allowed: the last loss of a diverged run often is one."""

    def plain(value: object) -> object:
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} is not text, a number, a list or a dictionary")

    try:
        return json.dumps(values, sort_keys=True, separators=(",", ":"), default=plain)
    except (TypeError, ValueError) as error:
        raise StoreError(f"detail and provenance hold what JSON can ({error}): got {values!r}") from error


def _digest(
    status: str,
    detail: str,
    series: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]],
    artefacts: Mapping[str, npt.NDArray[Any]],
) -> bytes:
    """A fingerprint of what the run found, apart from where and when it ran and from how it is compressed."""
    digest = hashlib.sha256(f"{status}\n{detail}\n".encode())
    arrays = {f"history/{name}": values for name, (_, values) in series.items()}
    arrays |= {f"steps/{name}": steps for name, (steps, _) in series.items()}
    arrays |= {f"artefacts/{name}": array for name, array in artefacts.items()}
    for name, array in sorted(arrays.items()):
        plain = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {plain.dtype.str} {plain.shape}\n".encode() + plain.tobytes())
    return digest.digest()[:16]


def _bare(digest: bytes, found: bytes) -> str:
    """The fingerprint of what a lean copy has of a run: of the whole result's fingerprint and that of the rest."""
    return hashlib.sha256(digest + found).hexdigest()[:16]
