"""The tables of a store, and the two numbers in the file's header by which one is recognised."""

import sqlite3
from contextlib import closing
from pathlib import Path

from dst_lab.store.disk.side_files import replacing_store
from dst_lab.store.errors import explained

APPLICATION_ID = int.from_bytes(b"dsts", "big")
FORMAT = 1

# A run takes a few kilobytes: on pages of 4096 bytes, up to a fifth of the file would be padding.
PAGE_SIZE = 1024

# Plain tables with checks, not STRICT ones: SQLite before 3.37 cannot even open a file that has a STRICT table.
_TABLES = """
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

FINGERPRINTS = """
CREATE TABLE IF NOT EXISTS bare_fingerprints (
    run INTEGER PRIMARY KEY REFERENCES runs (key) ON DELETE CASCADE,
    body TEXT NOT NULL CHECK (typeof(body) = 'text')
);
"""
"""What a lean copy still has of each run. Stores of older versions lack the table; it comes with the next run."""


def create(path: Path) -> None:
    """Make an empty store at `path`. It appears there whole or not at all."""
    with (
        explained(path),
        replacing_store(path) as draft,
        closing(sqlite3.connect(draft, isolation_level=None)) as connection,
    ):
        connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
        numbers = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT};"
        connection.executescript(f"BEGIN; {_TABLES} {FINGERPRINTS} {numbers} COMMIT;")
