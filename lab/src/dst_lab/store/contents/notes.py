"""Notes on runs: a text of one's own per run, beside what it found. The table is made with the first note."""

import sqlite3
from collections.abc import Iterable, Mapping

from dst_lab.store.record import identify

_TABLE = """
CREATE TABLE IF NOT EXISTS notes (
    run TEXT PRIMARY KEY CHECK (length(run) = 16),
    body TEXT NOT NULL CHECK (typeof(body) = 'text'),
    fingerprint TEXT NOT NULL
) WITHOUT ROWID
"""


def read(connection: sqlite3.Connection) -> dict[str, str]:
    """The notes by the ids of their runs. One that is damaged says so at its end."""
    rows = _rows(connection)
    return {run: body if is_whole(run, body, mark) else f"{_readable(body)} (damaged)" for run, body, mark in rows}


def damaged(connection: sqlite3.Connection) -> list[str]:
    """The runs whose notes are not as they were written."""
    return [run for run, body, mark in _rows(connection) if not is_whole(run, body, mark)]


def _rows(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone():
        return []
    return connection.execute("SELECT run, body, fingerprint FROM notes ORDER BY run").fetchall()


def write(connection: sqlite3.Connection, notes: Mapping[str, str]) -> None:
    """Put these in the place of those that are there; an empty text removes one."""
    if notes:
        connection.execute(_TABLE)
    for run, body in notes.items():
        if body:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (run, body, _fingerprint(run, body)))
        else:
            connection.execute("DELETE FROM notes WHERE run = ?", (run,))


def merge(
    connection: sqlite3.Connection, others: Mapping[str, str], runs: Iterable[str], *, prefer_other: bool
) -> tuple[int, list[str]]:
    """Add another store's notes on these runs. Where both have one, and not the same, this store's stays or, with
    `prefer_other`, the other's does.

    Returns:
        How many are new here, and the runs where the two differ.
    """
    ours, theirs = read(connection), {run: others[run] for run in runs if run in others}
    differing = [run for run, body in theirs.items() if ours.get(run, body) != body]
    new = {run: body for run, body in theirs.items() if run not in ours}
    write(connection, theirs if prefer_other else new)
    return len(new), differing


def is_whole(run: str, body: str, fingerprint: str) -> bool:
    """True where a note is as it was written."""
    try:
        return _fingerprint(run, body) == fingerprint
    except UnicodeEncodeError:  # bytes that are no text any more
        return False


def _readable(body: str) -> str:
    return body.encode(errors="replace").decode()


def _fingerprint(run: str, body: str) -> str:
    return identify(f"{run} {body}")
