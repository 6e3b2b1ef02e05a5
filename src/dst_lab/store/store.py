"""One SQLite file that holds every run of a study, and survives what happens to the process that writes it."""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy.typing as npt

from dst_lab.replace import STORE, check_target, resolved
from dst_lab.store import blob, history, networks, rows
from dst_lab.store.disk.compressed import is_compressed, pack, rewrite, unpacked
from dst_lab.store.disk.connection import Connection, close_writer, connect_reader, connect_writer, exists
from dst_lab.store.disk.lock import Lock
from dst_lab.store.disk.schema import create as create_file
from dst_lab.store.disk.side_files import replacing_store
from dst_lab.store.disk.slices import slices
from dst_lab.store.disk.watch import VanishedError, Watch
from dst_lab.store.errors import SALVAGE, StoreError, explained, sentence
from dst_lab.store.record import Record, Run, Series, identify
from dst_lab.store.rescue import Kept, rescue


@dataclass(frozen=True)
class MergeReport:
    """What a merge did. `differing` are those `already` there whose two results are not the same; the first stayed."""

    added: int
    already: int
    replaced: int
    differing: tuple[str, ...]


class Store:
    """The runs of a study in one file; open it with `Store.open`, close it with `with`.

    A reader needs no lock and changes nothing. A writer is alone: it holds the lock until it is closed. What `put`
    has returned from is on the disk, and in the file itself, not in a log beside it.
    """

    def __init__(
        self, path: Path, connection: Connection, lock: Lock | None, folder: "TemporaryDirectory[str] | None" = None
    ) -> None:
        self.path = path
        self._places: tuple[Path, ...] = (path,)  # stores with networks beside them: of a folder, every slice
        self._connection = connection
        self._lock = lock
        self._folder = folder
        self._watch = Watch(connection, path) if lock else None
        self._kept = Kept()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, create: bool = True) -> "Store":
        """Open a store to read or, with `write`, to write; a writer makes a missing one unless `create` is False.

        A name that ends with `.xz` is a compressed store, made by `copy`, which can be read and not written. A folder
        is read as the one store that all the stores in it make together; of a run that two of them hold, the first
        counts.

        Raises `StoreError` for a file that is no store, is damaged or newer (it is left as it is), and, for a writer,
        where another process is writing or nothing can be written.
        """
        # Resolved, because the lock and SQLite's own files lie beside the file itself, not beside a link to it.
        with explained(Path(path)):
            file = resolved(path)
        if is_compressed(file):
            return cls._open_compressed(file, write)
        if file.is_dir():
            return cls._open_folder(file, write)
        # Looked at before the lock is taken: a file that is no store does not even get a lock beside it.
        if not exists(file) and not (write and create):
            raise StoreError(f"there is no store at {file}. Give the path of one; training with --store makes it.")
        if not write:
            return cls(file, connect_reader(file), None)
        if not file.parent.is_dir():
            raise StoreError(f"{file}: the folder {file.parent} does not exist. Make it first.")
        lock = Lock(file)
        try:
            if not exists(file):
                create_file(file)
            connection = connect_writer(file)
            try:
                store = cls(file, connection, lock)
                store._verify_parts()
                return store
            except BaseException:
                close_writer(connection)
                raise
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_compressed(cls, file: Path, write: bool) -> "Store":
        if write:
            raise StoreError(
                f"{file} is compressed, and such a store is only read. To go on with its runs, make a plain one of it: "
                f"`dst copy --store {file.name} runs.sqlite`."
            )
        folder, plain = unpacked(file)
        try:
            if not exists(plain):
                raise StoreError(f"{file} holds no store: it is empty inside.")
            return cls(file, connect_reader(plain), None, folder)
        except BaseException:
            folder.cleanup()
            raise

    @classmethod
    def _open_folder(cls, folder: Path, write: bool) -> "Store":
        if write:
            raise StoreError(
                f"{folder} is not a file: a store is one file, and a folder of slices is only read. To go on with "
                f"their runs, make one store of them: `dst copy --store {folder.name} runs.sqlite`."
            )
        first, *others = slices(folder)
        if not others:
            only = cls.open(first)
            only.path = folder
            return only  # which looks for networks beside the slice
        temporary = TemporaryDirectory(prefix="dst-")
        try:
            joined = Path(temporary.name) / "joined.sqlite"
            with cls.open(joined, write=True) as store:
                for one in (first, *others):
                    store._merge(one, carry=False)
            together = cls(folder, connect_reader(joined), None, temporary)
            together._places = (first, *others)
            return together
        except BaseException:
            temporary.cleanup()
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and let the next writer in."""
        if self._lock is None:
            self._connection.close()
            if self._folder is not None:
                self._folder.cleanup()
            return
        try:
            close_writer(self._connection)
        finally:
            self._lock.release()

    def put(self, records: Iterable[Record]) -> int:
        """Record runs, all or none of them, and return how many were new.

        A run that is already there stays as it is, whatever the second result: repeating a `put` changes nothing.
        Only a failed or a stopped run gives way, to one that is done or diverged, and a failed one to a stopped one.
        When this returns, the runs are on the disk.
        """
        records = list(records)
        encoded = [rows.encode(record) for record in records]
        self._kept.add(encoded)
        self._kept.networks = [
            networks.Network(row.id, row.digest, record.network)
            for record, row in zip(records, encoded, strict=True)
            if record.network
        ]
        with self._transaction() as connection:
            outcomes = [rows.insert(connection, row) for row in encoded]
            # Before the record is there for good: a run that is recorded as kept has its file.
            found = {row.id: (row, outcome) for row, outcome in zip(encoded, outcomes, strict=True)}
            for network in self._kept.networks:
                if self._takes_network(connection, *found[network.run]):
                    networks.write(self.path, network)
        self._kept.networks = []
        return sum(outcome in (rows.Outcome.ADDED, rows.Outcome.REPLACED) for outcome in outcomes)

    def fold(self) -> bool:
        """Fold the log into the file, so that the file alone is whole. `put` and `merge` do it.

        False where a reader kept it from finishing: nothing is lost, and the next fold does the rest.
        """
        self._check_writer()
        with explained(self.path):
            (busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def merge(self, other: str | os.PathLike[str], *, prefer_other: bool = False) -> MergeReport:
        """Add the runs of another store, all or none of them, by the rules of `put`; merging again changes nothing.

        Where both have another final result of a run, this store's stays or, with `prefer_other`, the other's does.

        Kept networks come along where the run's record is the other store's, or equal to it.
        """
        return self._merge(other, prefer_other=prefer_other)

    def _merge(self, other: str | os.PathLike[str], *, prefer_other: bool = False, carry: bool = True) -> MergeReport:
        """`merge`; without `carry`, networks stay where they are."""
        outcomes: dict[str, rows.Outcome] = {}
        outdated: list[str] = []
        with Store.open(other) as source, self._transaction() as connection:
            networks_there = source.kept() if carry else set()
            for row in source.verified_rows():
                new = row.repacked() if source._folder else row
                outcomes[row.id] = rows.insert(connection, new, prefer_new=prefer_other)
                if row.id in networks_there and self._takes_network(connection, row, outcomes[row.id]):
                    networks.write(self.path, source.network(row.id))
                elif outcomes[row.id] is rows.Outcome.REPLACED:
                    outdated.append(row.id)
        networks.remove(self.path, outdated)
        counts = {kind: sum(outcome is kind for outcome in outcomes.values()) for kind in rows.Outcome}
        return MergeReport(
            added=counts[rows.Outcome.ADDED],
            already=counts[rows.Outcome.PRESENT] + counts[rows.Outcome.DIFFERS],
            replaced=counts[rows.Outcome.REPLACED],
            differing=tuple(run for run, outcome in outcomes.items() if outcome is rows.Outcome.DIFFERS),
        )

    def copy(
        self,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        artefacts_of: Collection[str] | None = None,
    ) -> None:
        """Write a consistent copy of the store, as it is now, to `target`; another process may be writing meanwhile.

        Every run of the copy is verified; damage is an error, and leaves nothing: `salvage` brings out what is whole.
        A `target` that ends with `.xz` is compressed as a whole. `artefacts_of` are the ids of the runs whose artefacts
        are copied (None: all, and the networks that were kept); everything else is copied of every run.
        """
        with explained(Path(target)):
            file = resolved(target)
        if file.exists() and file.samefile(self.path):
            raise StoreError(f"{file} is the store itself: a copy needs another path.")
        with explained(file):
            check_target(file, STORE, overwrite=overwrite)
        lock = Lock(file)
        try:
            if artefacts_of is None:
                runs = sorted(self.kept())
                for run in runs:
                    self.network(run)  # before anything is written
                for run in runs:
                    networks.write(file, self.network(run))
            with explained(file), replacing_store(file) as draft:
                try:
                    self._connection.execute("VACUUM INTO ?", (str(draft),))
                    small = is_compressed(file)
                    if small or artefacts_of is not None or self._folder is not None:
                        rewrite(draft, level=0 if small else blob.LEVEL, artefacts_of=artefacts_of)
                    _verify(draft)
                    if small:
                        pack(draft)
                except sqlite3.OperationalError:
                    raise
                except (sqlite3.DatabaseError, ValueError) as error:
                    # Damage is in what is read, not in what is written.
                    raise StoreError(sentence(self.path, error)) from error
        finally:
            lock.release()

    def remove(self, runs: Collection[str]) -> int:
        """Remove runs and their kept networks, all or none of them, and return how many there were."""
        with self._transaction() as connection:
            # What is removed on purpose is not to come back by `salvage`.
            connection.execute("PRAGMA secure_delete=ON")
            count = connection.executemany("DELETE FROM runs WHERE id = ?", [(run,) for run in runs]).rowcount
            connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")
        networks.remove(self.path, runs)
        return count

    def finished(self) -> set[str]:
        """The ids of the runs that need no more training: done or diverged."""
        return {run for (run,) in self._query("SELECT id FROM runs WHERE status IN ('done', 'diverged')")}

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
        found = self._query(
            f"SELECT id, config, status, detail, provenance FROM runs WHERE {where} ORDER BY key", *chosen.values()
        )
        return [self._run(*columns) for columns in found]

    def history(self, run_id: str) -> dict[str, Series]:
        """The metrics of a run over its steps."""
        found = self._about(run_id, "SELECT body FROM histories WHERE run = ?")
        with self._intact(run_id, "history"):
            ((body,),) = found
            return history.unpack(body)

    def artefacts(self, run_id: str) -> dict[str, npt.NDArray[Any]]:
        """The small arrays that were kept of a run."""
        found = self._about(run_id, "SELECT body FROM artefacts WHERE run = ? ORDER BY rowid")
        with self._intact(run_id, "artefacts"):
            return {name: array for (body,) in found for name, array in blob.unpack(body).items()}

    def network(self, run_id: str) -> networks.Network:
        """The network of a run that was kept; `StoreError` where it was not, or is not the one of this record."""
        ((digest,),) = self._about(run_id, "SELECT digest FROM runs WHERE key = ?")
        places = [place for place in self._places if networks.kept(place, [run_id])] or self._places
        for place in places[:-1]:
            with suppress(StoreError):  # another slice has one too
                return networks.read_for(place, run_id, digest.hex())
        return networks.read_for(places[-1], run_id, digest.hex())

    def kept(self) -> set[str]:
        """The ids of the runs whose network lies beside the store."""
        finished = self.finished()
        return {run for place in self._places for run in networks.kept(place, finished)}

    def _takes_network(self, connection: Connection, row: rows.StoredRow, outcome: rows.Outcome) -> bool:
        """True where a row's network belongs to what is recorded now, and is not there yet."""
        if outcome in (rows.Outcome.ADDED, rows.Outcome.REPLACED):
            return True
        same = connection.execute("SELECT 1 FROM runs WHERE id = ? AND digest = ?", (row.id, row.columns[7])).fetchone()
        return bool(same) and not networks.kept(self.path, [row.id])

    def provenance(self, run_id: str) -> dict[str, Any]:
        """Where, when and with what a run was trained."""
        found = self._about(
            run_id, "SELECT body FROM provenance WHERE id = (SELECT provenance FROM runs WHERE key = ?)"
        )
        with self._intact(run_id, "provenance"):
            ((body,),) = found
            return dict(json.loads(body))

    def _query(self, sql: str, *values: object) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(sql, values).fetchall()

    def _about(self, run_id: str, sql: str) -> list[Any]:
        key = self._query("SELECT key FROM runs WHERE id = ?", run_id)
        if not key:
            raise StoreError(f"{self.path} holds no run {run_id!r}. `dst show` lists the runs there are.")
        return self._query(sql, key[0][0])

    def _run(self, run: str, config: str, status: str, detail: str, provenance: str) -> Run:
        with self._intact(run, "config"):
            if identify(config) != run:
                raise ValueError("it does not belong to the id")
            return Run(
                id=run, config=json.loads(config), status=status, detail=json.loads(detail), provenance_id=provenance
            )

    def verified_rows(self) -> Iterator[rows.StoredRow]:
        """Every row, as of one moment, verified so that damage does not spread by merging."""
        with explained(self.path):
            self._connection.execute("BEGIN")
            for row in rows.read_all(self._connection):
                with self._intact(row.id, "record"):
                    row.verify()
                yield row
            self._connection.execute("COMMIT")

    def _verify_parts(self) -> None:
        """Find a damaged row now, rather than after an hour of training."""
        with explained(self.path):
            for row in rows.read_all(self._connection):
                with self._intact(row.id, "record"):
                    row.verify_parts()

    @contextmanager
    def _intact(self, run_id: str, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{self.path}: the {what} of run {run_id} is damaged ({error}). {SALVAGE}") from error

    def _check_writer(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} was opened for reading. Open it with write=True to record runs.")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """All or nothing, then folded into the file, which is looked at before and after."""
        self.check()
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                # After some errors, a full disk among them, SQLite has already rolled back by itself.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    self.check()  # where the file was changed under it, that is what to say
                raise
        self.fold()
        with self._in_place() as watch, explained(self.path):
            watch.remember(self._connection)

    def check(self) -> None:
        """Raise `StoreError` unless the file under the writer's path is the one it has open, as it left it.

        Where it is not, the runs are first saved in another file, which the message names.
        """
        with self._in_place() as watch:
            watch.moved()
            if not watch.touched():
                return
            # What SQLite remembers of its pages may be of a file that is no more: read it anew.
            try:
                self._connection.close()
                self._connection = connect_writer(self.path)
                watch.compare(self._connection)
                watch.remember(self._connection)
            except (StoreError, sqlite3.Error) as error:
                raise VanishedError("was changed by something else", intact=False) from error

    @contextmanager
    def _in_place(self) -> Iterator[Watch]:
        self._check_writer()
        assert self._watch is not None
        try:
            yield self._watch
        except VanishedError as error:
            saved = rescue(self.path, self._connection, self._kept, intact=error.intact)
            self._kept = Kept()
            raise StoreError(
                f"{self.path} {error} while runs were trained; nothing more is recorded. {saved}"
            ) from error


def _verify(path: Path) -> None:
    """Raise ValueError, with the run and the reason, unless every run of the file is whole."""
    with closing(sqlite3.connect(path)) as connection:
        run = ""
        try:
            for row in rows.read_all(connection):
                run = row.id
                row.verify()
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"malformed: run {run}: {error}") from error
