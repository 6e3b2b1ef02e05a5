"""One SQLite file that holds every run of a study, and survives what happens to the process that writes it."""

import json
import os
import sqlite3
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt

from dst_lab.replace import is_table, replacing, resolved
from dst_lab.runs import identify
from dst_lab.store import blob, files, networks, rows
from dst_lab.store.errors import RESTORE, DamagedRunError, StoreError, StoreWarning, explained
from dst_lab.store.record import Record, Run, Series
from dst_lab.store.rows import Outcome


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


class Store:
    """The runs of a study in one file, or in several slices; open it with `Store.open`, close it with `with`.

    A reader changes nothing. A writer is alone until it is closed. What `put` has returned from is on the disk.
    """

    def __init__(
        self, path: Path, slices: list[tuple[Path, sqlite3.Connection]], held: ExitStack, *, is_writer: bool = False
    ) -> None:
        self.path = path
        self._slices, self._held, self._is_writer = slices, held, is_writer
        self._slice_of: dict[str, int] = {}
        """Where there are several slices: the one whose record of a run counts."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, create: bool = True) -> "Store":
        """Open a store to read or, with `write`, to write; a writer makes a missing one unless `create` is False.

        A name that ends with `.xz` is a compressed store, made by `copy`, which can be read and not written. A folder
        is read as the one store that all the stores in it make together; of a run that two of them hold, the first
        counts, with a `StoreWarning` where their results differ.

        Raises `StoreError` for a file that is no store, is damaged or newer (it is left as it is), and, for a writer,
        where another process is writing or nothing can be written.
        """
        with explained(Path(path)):
            file = resolved(path)
        with ExitStack() as held:
            if write:
                _check_writable(file)
                if not create or files.has_content(file):
                    # Before the lock: a file that is no store gets no lock, and a damaged one stays as it is.
                    with cls.open(file) as existing:
                        existing.check_whole()
                held.enter_context(files.locked(file))
                store = cls(file, [(file, held.enter_context(files.writer(file)))], held, is_writer=True)
            else:
                parts = files.slices(file) if file.is_dir() else [file]
                plain = [held.enter_context(files.plain(part)) for part in parts]
                opened = [held.enter_context(closing(files.connect_reader(part))) for part in plain]
                store = cls(file, list(zip(parts, opened, strict=True)), held)
                store._choose_among_slices()
            store._held = held.pop_all()
        return store

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and let the next writer in."""
        self._held.close()

    def finished(self) -> set[str]:
        """The ids of the runs that need no more training: done or diverged."""
        return {run.id for run in self.runs() if run.status in ("done", "diverged")}

    def runs(
        self,
        *,
        task: str | None = None,
        estimator: str | None = None,
        status: str | None = None,
        seed: int | None = None,
    ) -> list[Run]:
        """The runs that fit every given filter, in the order they were recorded."""
        given = {"task": task, "estimator": estimator, "status": status, "seed": seed}
        chosen = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(["1", *(f"{name} = ?" for name in chosen)])
        found = []
        for number in range(len(self._slices)):
            listed = self._query(
                number,
                f"SELECT id, config, status, detail, provenance FROM runs WHERE {where} ORDER BY key",
                *chosen.values(),
            )
            for run, config, ended, detail, origin in listed:
                if self._slice_of.get(run, number) == number:
                    with self._intact(run, "config"):
                        if identify(config) != run:
                            raise ValueError("it does not belong to the id")
                        values = json.loads(config), ended, json.loads(detail), origin
                        found.append(Run(run, *values))
        return found

    def find(self, start: str) -> Run:
        """The one run whose id begins so; `StoreError` where there is none, or more than one."""
        found = [run for run in self.runs() if run.id.startswith(start)] if start else []
        if len(found) != 1:
            several = f"{len(found)} runs whose ids begin with" if found else "no run"
            raise StoreError(f"{self.path} holds {several} {start!r}. `dst show --group id` lists those there are.")
        return found[0]

    def history(self, run_id: str) -> dict[str, Series]:
        """The metrics of a run over its steps."""
        bodies = self._about(run_id, "SELECT body FROM histories WHERE run = ?")
        with self._intact(run_id, "history"):
            ((body,),) = bodies
            return {name: Series(steps, values) for name, (steps, values) in blob.unpack_history(body).items()}

    def artefacts(self, run_id: str) -> dict[str, npt.NDArray[Any]]:
        """The small arrays that were kept of a run."""
        bodies = self._about(run_id, "SELECT body FROM artefacts WHERE run = ? ORDER BY rowid")
        with self._intact(run_id, "artefacts"):
            return {name: array for (body,) in bodies for name, array in blob.unpack(body).items()}

    def provenance(self, run_id: str) -> dict[str, Any]:
        """Where, when and with what a run was trained."""
        bodies = self._about(
            run_id, "SELECT body FROM provenance WHERE id = (SELECT provenance FROM runs WHERE key = ?)"
        )
        with self._intact(run_id, "provenance"):
            ((body,),) = bodies
            return dict(json.loads(body))

    def network(self, run_id: str) -> networks.Tensors:
        """The tensors of a run's network, by name; `StoreError` where it was not kept, or its file is damaged."""
        ((digest, status),) = self._about(run_id, "SELECT digest, status FROM runs WHERE key = ?")
        if status in ("diverged", "failed"):
            raise StoreError(f"run {run_id} {status}, and such a run leaves no network.")
        file = self._file_of(run_id, digest)
        if file is None:
            path = networks.path_of(self._slices[0][0], run_id, digest.hex())
            raise StoreError(
                f"the network of run {run_id} is missing: there is no {path}. If it was kept, put that folder next to "
                "the store again; otherwise train the run with --keep into another store, since a finished run is not "
                "trained again, and load it from there."
            )
        return networks.read(file, run_id, digest.hex())

    def kept(self) -> set[str]:
        """The ids of the runs whose network, that of the result recorded here, was kept."""
        final = "SELECT id, digest FROM runs WHERE status IN ('done', 'diverged')"
        listed = [(number, *row) for number in range(len(self._slices)) for row in self._query(number, final)]
        return {
            run
            for number, run, digest in listed
            if self._slice_of.get(run, number) == number and self._file_of(run, digest)
        }

    def verified_rows(self) -> Iterator[rows.StoredRow]:
        """Every run as it is stored, each slice as of one moment; raise `StoreError` where anything is damaged."""
        for number, (path, connection) in enumerate(self._slices):
            with explained(path):
                connection.execute("BEGIN")
                try:
                    files.check_pages(connection, path)
                    for row in rows.read_all(connection):
                        with self._intact(row.id, "record"):
                            row.verify()
                        if self._slice_of.get(row.id, number) == number:
                            yield row
                finally:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    def check_whole(self) -> None:
        """Raise `StoreError` where the file does not hold together, or anything of a run in it is damaged.

        Unpacks every history: of 7,000 runs in a second.
        """
        for _ in self.verified_rows():
            pass

    def put(self, records: Iterable[Record]) -> int:
        """Record runs, all or none of them, and return how many were new.

        A run that is already there stays as it is, whatever the second result: repeating a `put` changes nothing.
        Only a failed or a stopped run gives way, to one that is done or diverged, and a failed one to a stopped one.
        When this returns, the runs are on the disk.
        """
        outcomes = []
        with self._transaction() as connection:
            for record in records:
                row = rows.encode(record)
                outcomes.append((row, rows.insert(connection, row)))
                if record.network and self._lacks_network(row):
                    networks.write(self.path, row.id, row.digest.hex(), record.network)
        self._remove_outdated_networks(outcomes)
        return sum(outcome in (Outcome.ADDED, Outcome.REPLACED) for _, outcome in outcomes)

    def merge(self, other: str | os.PathLike[str], *, prefer_other: bool = False) -> MergeReport:
        """Add the runs of another store, all or none of them, by the rules of `put`; merging again changes nothing.

        Where both have another final result of a run, this store's stays or, with `prefer_other`, the other's does; an
        equal one brings artefacts that a lean copy left out.

        Kept networks come along where the run's record is the other store's, or equal to it.
        """
        outcomes, carried = [], 0
        with Store.open(other) as source, self._transaction() as connection:
            for row in source.verified_rows():
                stored = row.repacked(blob.LEVEL) if source._is_unpacked else row
                outcomes.append((row, rows.insert(connection, stored, prefer_new=prefer_other)))
                file = source._file_of(row.id, row.digest)
                if file and self._lacks_network(row):
                    result = row.id, row.digest.hex()
                    networks.write(self.path, *result, networks.read(file, *result))
                    carried += 1
        self._remove_outdated_networks(outcomes)
        count = Counter(outcome for _, outcome in outcomes)
        return MergeReport(
            added=count[Outcome.ADDED],
            already=count[Outcome.PRESENT] + count[Outcome.COMPLETED] + count[Outcome.DIFFERS],
            replaced=count[Outcome.REPLACED],
            differing=tuple(row.id for row, outcome in outcomes if outcome is Outcome.DIFFERS),
            completed=count[Outcome.COMPLETED],
            networks=carried,
        )

    def copy(
        self, target: str | os.PathLike[str], *, overwrite: bool = False, artefacts_of: Collection[str] | None = None
    ) -> None:
        """Write a consistent copy of the store, as it is now, to `target`; another process may be writing meanwhile.

        Every run of the copy is verified; damage is an error, and leaves no copy. A `target` that ends with `.xz` is
        compressed as a whole. `artefacts_of` are the ids of the runs whose artefacts are copied (None: all, and the
        networks that were kept); everything else is copied of every run.
        """
        with explained(Path(target)):
            file = resolved(target)
            if file.exists() and file.samefile(self.path):
                raise StoreError(f"{file} is the store itself: a copy needs another path.")
            if file.exists() and not overwrite:
                raise StoreError(f"{file} exists already: give another path, or replace it with --overwrite.")
        is_compressed = file.suffix == files.COMPRESSED
        level = 0 if is_compressed else blob.LEVEL if self._is_unpacked else None
        with files.locked(file), explained(file), replacing(file) as draft:
            with files.writer(draft) as connection:
                connection.execute("BEGIN")
                for row in self.verified_rows():
                    is_whole = artefacts_of is None or row.id in artefacts_of
                    copied = row if is_whole else row.without_artefacts()
                    rows.insert(connection, copied if level is None else copied.repacked(level))
                    kept = self._file_of(row.id, row.digest) if artefacts_of is None else None
                    if kept:
                        result = row.id, row.digest.hex()
                        networks.write(file, *result, networks.read(kept, *result))
                connection.execute("COMMIT")
            if is_compressed:
                files.compress(draft)
            for end in ("-wal", "-shm", "-journal"):  # SQLite would replay the log of what was there into the copy
                file.with_name(file.name + end).unlink(missing_ok=True)

    def remove(self, runs: Collection[str]) -> int:
        """Remove runs and their kept networks, all or none of them, and return how many there were."""
        with self._transaction() as connection:
            count = connection.executemany("DELETE FROM runs WHERE id = ?", [(run,) for run in runs]).rowcount
            connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")
        for run in runs:
            networks.remove(self.path, run)
        return count

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing."""
        if not self._is_writer:
            raise StoreError(f"{self.path} was opened for reading. Open it with write=True to record runs.")
        if not self.path.exists():
            raise StoreError(f"{self.path} was removed or moved while runs were trained; nothing more is recorded.")
        ((_, connection),) = self._slices
        with explained(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # after some errors, a full disk among them, SQLite has done so itself
                    connection.execute("ROLLBACK")
                raise
            # So that the file has these runs even where it is copied without its log.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @property
    def _is_unpacked(self) -> bool:
        """True where blobs are not compressed one by one, since a whole slice is."""
        return any(path.suffix == files.COMPRESSED for path, _ in self._slices)

    def _file_of(self, run: str, digest: bytes) -> Path | None:
        """The file with the network of a result, in the folder of the first slice that has it."""
        files_of_slices = (networks.path_of(path, run, digest.hex()) for path, _ in self._slices)
        return next(filter(Path.is_file, files_of_slices), None)

    def _lacks_network(self, row: rows.StoredRow) -> bool:
        """True where the result of a row is what is recorded of its run, and its network is not there."""
        recorded = self._query(0, "SELECT 1 FROM runs WHERE id = ? AND digest = ?", row.id, row.digest)
        return bool(recorded) and self._file_of(row.id, row.digest) is None

    def _remove_outdated_networks(self, outcomes: Iterable[tuple[rows.StoredRow, Outcome]]) -> None:
        for row, outcome in outcomes:
            if outcome is Outcome.REPLACED:
                networks.remove(self.path, row.id, keep=row.digest.hex())

    def _choose_among_slices(self) -> None:
        """Take the first result of a run that several slices hold, or a later one where that failed or was stopped."""
        if len(self._slices) == 1:
            return
        best: dict[str, tuple[int, bytes]] = {}
        for number, (path, _) in enumerate(self._slices):
            differing = []
            for run, status, digest in self._query(number, "SELECT id, status, digest FROM runs ORDER BY key"):
                weight = rows.WEIGHT.get(status, -1)
                if run not in best or weight > best[run][0]:
                    best[run], self._slice_of[run] = (weight, digest), number
                elif weight == rows.FINAL and digest != best[run][1]:
                    differing.append(run)
            if differing:
                more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
                warnings.warn(
                    f"{path} has another result of run {differing[0]}{more} than an earlier slice, which counts",
                    StoreWarning,
                    stacklevel=3,
                )

    def _query(self, number: int, sql: str, *values: object) -> list[Any]:
        path, connection = self._slices[number]
        with explained(path):
            return connection.execute(sql, values).fetchall()

    def _about(self, run_id: str, sql: str) -> list[Any]:
        number = self._slice_of.get(run_id, 0)
        key = self._query(number, "SELECT key FROM runs WHERE id = ?", run_id)
        if not key:
            raise StoreError(f"{self.path} holds no run {run_id!r}. `dst show --group id` lists those there are.")
        return self._query(number, sql, key[0][0])

    @contextmanager
    def _intact(self, run_id: str, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedRunError(f"{self.path}: the {what} of run {run_id} is damaged ({error}). {RESTORE}") from error


def _check_writable(file: Path) -> None:
    """Raise `StoreError` for what is only read: a compressed store, a table, and a folder of slices."""
    kind = "a folder of slices" if file.is_dir() else "compressed" if file.suffix == files.COMPRESSED else ""
    kind = "a table of runs as text" if is_table(file) else kind
    if kind:
        raise StoreError(
            f"{file} is {kind}, and such a store is only read. To go on with its runs, make a plain one of it: "
            f"`dst copy --store {file.name} runs.sqlite`."
        )
