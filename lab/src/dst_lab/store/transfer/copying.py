"""A consistent copy of a store's file, verified run by run before it takes its place."""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path

from dst_lab.store.contents import blob, rows
from dst_lab.store.disk.compressed import is_compressed, pack, rewrite
from dst_lab.store.disk.connection import as_text, check_whole, copy_into
from dst_lab.store.disk.side_files import replacing_store
from dst_lab.store.errors import StoreError, is_damage, sentence


def write_copy(
    connection: sqlite3.Connection,
    source: Path,
    target: Path,
    carry_networks: Callable[[Mapping[str, str]], None],
    artefacts_of: Collection[str] | None,
    *,
    repack: bool,
) -> None:
    """Write what a connection to `source` sees now to `target`, compressed as a whole where its name ends so.

    `artefacts_of` are the runs whose artefacts come along (None: all). `repack`: every blob is compressed anew.
    `carry_networks` gets the digests of the finished runs by their ids, before the file takes its place.
    """
    with replacing_store(target) as draft:
        try:
            check_whole(connection, source)
            copy_into(connection, draft)
            small = is_compressed(target)
            if small or artefacts_of is not None or repack:
                rewrite(draft, level=0 if small else blob.LEVEL, artefacts_of=artefacts_of)
            carry_networks(_verified(draft))
            if small:
                pack(draft)
        except (sqlite3.DatabaseError, ValueError) as error:
            if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
                raise
            # Damage is in what is read, not in what is written.
            raise StoreError(sentence(source, error)) from error


def _verified(path: Path) -> dict[str, str]:
    """The digests of the finished runs; ValueError, with the run and the reason, unless every run is whole."""
    digests = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory, run = as_text, ""
        try:
            for row in rows.read_all(connection):
                run = row.id
                row.verify()
                if row.is_final:
                    digests[run] = row.digest
        except ValueError as error:
            raise ValueError(f"malformed: run {run}: {error}") from error
    return digests
