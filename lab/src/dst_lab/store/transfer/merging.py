"""Joining another store's runs to those that are there: whose record and network of a run stays."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from dst_lab.store.contents import networks, rows
from dst_lab.store.contents.arrivals import Arrivals


@dataclass(frozen=True)
class MergeReport:
    """What a merge did. `differing` are those `already` there whose two results are not the same, which stayed.
    `completed`: so many of those `already` there were equal, and got the artefacts that a lean copy had left out.
    `networks`: so many came along."""

    added: int
    already: int
    replaced: int
    differing: tuple[str, ...]
    completed: int = 0
    networks: int = 0


class Merging:
    """A merge into a store, inside the caller's transaction, with the networks that arrive there."""

    def __init__(self, connection: sqlite3.Connection, arriving: Arrivals, prefer_other: bool) -> None:
        self._connection, self._arriving, self._prefer_other = connection, arriving, prefer_other
        self._outcomes: dict[str, rows.Outcome] = {}
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

    def report(self) -> MergeReport:
        """What was done."""
        counts = {kind: sum(outcome is kind for outcome in self._outcomes.values()) for kind in rows.Outcome}
        return MergeReport(
            added=counts[rows.Outcome.ADDED],
            already=sum(counts[kind] for kind in (rows.Outcome.PRESENT, rows.Outcome.COMPLETED, rows.Outcome.DIFFERS)),
            replaced=counts[rows.Outcome.REPLACED],
            differing=tuple(run for run, outcome in self._outcomes.items() if outcome is rows.Outcome.DIFFERS),
            completed=counts[rows.Outcome.COMPLETED],
            networks=self._networks,
        )


def takes_network(
    connection: sqlite3.Connection, arriving: Arrivals, row: rows.StoredRow, outcome: rows.Outcome
) -> bool:
    """True where a row's network belongs to what is recorded now, and is not there yet."""
    if outcome.is_new:
        return True
    same = connection.execute("SELECT 1 FROM runs WHERE id = ? AND digest = ?", (row.id, row.columns[7])).fetchone()
    return bool(same) and not arriving.has(row.id, row.digest)
