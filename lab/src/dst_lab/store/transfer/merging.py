"""Joining another store's runs to those that are there: whose record, network and note of a run stays."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dst_lab.store.contents import networks, notes, rows
from dst_lab.store.contents.arrivals import Arrivals
from dst_lab.store.disk.connection import close_writer, connect_writer


@dataclass(frozen=True)
class MergeReport:
    """What a merge did. `differing` are those `already` there whose two results are not the same, and `notes` those of
    which both stores have a note, and not the same; the first stayed, unless the other was preferred. `completed`: so
    many of those `already` there were equal, and got the artefacts that a lean copy had left out. `new_notes` and
    `networks`: so many came along."""

    added: int
    already: int
    replaced: int
    differing: tuple[str, ...]
    notes: tuple[str, ...] = ()
    completed: int = 0
    new_notes: int = 0
    networks: int = 0


class Merging:
    """A merge into a store, inside the caller's transaction, with the networks that arrive there."""

    def __init__(self, connection: sqlite3.Connection, arriving: Arrivals, prefer_other: bool) -> None:
        self._connection, self._arriving, self._prefer_other = connection, arriving, prefer_other
        self._outcomes: dict[str, rows.Outcome] = {}
        self._notes: tuple[int, list[str]] = (0, [])
        self._networks = 0

    def add(self, row: rows.StoredRow, network: Callable[[str], networks.Network] | None) -> None:
        """A run of the other store; `network` reads its network, where one was kept and is to come along."""
        outcome = rows.insert(self._connection, row, prefer_new=self._prefer_other)
        self._outcomes[row.id] = outcome
        if network and takes_network(self._connection, self._arriving, row, outcome):
            self._arriving.add(network(row.id))
            self._networks += 1
        elif outcome.is_new:
            self._arriving.outdate(row.id, row.digest)

    def add_notes(self, others: Mapping[str, str]) -> None:
        """The other store's notes on the runs that were added."""
        self._notes = notes.merge(self._connection, others, self._outcomes, prefer_other=self._prefer_other)

    def report(self) -> MergeReport:
        """What was done."""
        counts = {kind: sum(outcome is kind for outcome in self._outcomes.values()) for kind in rows.Outcome}
        return MergeReport(
            added=counts[rows.Outcome.ADDED],
            already=sum(counts[kind] for kind in (rows.Outcome.PRESENT, rows.Outcome.COMPLETED, rows.Outcome.DIFFERS)),
            replaced=counts[rows.Outcome.REPLACED],
            differing=tuple(run for run, outcome in self._outcomes.items() if outcome is rows.Outcome.DIFFERS),
            notes=tuple(self._notes[1]),
            completed=counts[rows.Outcome.COMPLETED],
            new_notes=self._notes[0],
            networks=self._networks,
        )


def insert_all(path: Path, new: Iterable[rows.StoredRow], noted: Mapping[str, str] | None = None) -> int:
    """Add rows to the store at `path`, which nobody else has open, with the notes on them; how many it then has."""
    connection = connect_writer(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        added = []
        for row in new:
            rows.insert(connection, row)
            added.append(row.id)
        notes.merge(connection, noted or {}, added, prefer_other=True)
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        connection.execute("COMMIT")
    finally:
        close_writer(connection)
    return int(count)


def takes_network(
    connection: sqlite3.Connection, arriving: Arrivals, row: rows.StoredRow, outcome: rows.Outcome
) -> bool:
    """True where a row's network belongs to what is recorded now, and is not there yet."""
    if outcome.is_new:
        return True
    same = connection.execute("SELECT 1 FROM runs WHERE id = ? AND digest = ?", (row.id, row.columns[7])).fetchone()
    return bool(same) and not arriving.has(row.id, row.digest)
