"""One SQLite file that holds every run of a study, and survives what happens to the process that writes it."""

import os
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from dst_lab.replace import STORE, check_target, resolved
from dst_lab.store.contents import networks, rows
from dst_lab.store.contents.arrivals import Arrivals, arriving_with, tidy
from dst_lab.store.disk.compressed import is_compressed, unpacked
from dst_lab.store.disk.connection import Connection, close_writer, connect_reader, connect_writer, exists
from dst_lab.store.disk.lock import Lock
from dst_lab.store.disk.schema import create as create_file
from dst_lab.store.disk.slices import slices
from dst_lab.store.errors import StoreError, StoreWarning, explained
from dst_lab.store.reading import RecordedRuns
from dst_lab.store.record import Record
from dst_lab.store.transfer.copying import write_copy
from dst_lab.store.transfer.merging import MergeReport, Merging, takes_network
from dst_lab.store.writer import Writer


class Store(RecordedRuns):
    """The runs of a study in one file; open it with `Store.open`, close it with `with`.

    A reader needs no lock and changes nothing. A writer is alone: it holds the lock until it is closed. What `put`
    has returned from is on the disk, and in the file itself, not in a log beside it.
    """

    def __init__(
        self, path: Path, connection: Connection, lock: Lock | None, folder: "TemporaryDirectory[str] | None" = None
    ) -> None:
        super().__init__(path, connection)
        self._writer = Writer(path, connection, lock) if lock else None
        self._folder = folder

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write: bool = False, create: bool = True) -> "Store":
        """Open a store to read or, with `write`, to write; a writer makes a missing one unless `create` is False.

        A name that ends with `.xz` is a compressed store, made by `copy`, which can be read and not written. A folder
        is read as the one store that all the stores in it make together; of a run that two of them hold, the first
        counts, with a `StoreWarning` where their results differ.

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
                store._verify_runs()  # rather than after an hour of training
                tidy(file, store._digests)
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
                    if differing := store._merge(one, carry=False).differing:
                        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
                        warnings.warn(
                            f"{one} has another result of run {differing[0]}{more} than an earlier slice, which counts",
                            StoreWarning,
                            stacklevel=3,
                        )
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
        if self._writer is not None:
            self._writer.close()
            return
        self._reader.close()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def _connection(self) -> Connection:
        return self._writer.connection if self._writer else self._reader

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading. Open it with write=True to record runs.")
        return self._writer

    def put(self, records: Iterable[Record]) -> int:
        """Record runs, all or none of them, and return how many were new.

        A run that is already there stays as it is, whatever the second result: repeating a `put` changes nothing.
        Only a failed or a stopped run gives way, to one that is done or diverged, and a failed one to a stopped one.
        When this returns, the runs are on the disk.
        """
        writer, records = self._writing(), list(records)
        encoded = [rows.encode(record) for record in records]
        kept = [
            networks.Network(row.id, row.digest, record.network) if record.network else None
            for record, row in zip(records, encoded, strict=True)
        ]
        with Arrivals(self.path) as arriving, writer.transaction(arriving) as connection:
            outcomes = [rows.insert(connection, row) for row in encoded]
            for row, outcome, network in zip(encoded, outcomes, kept, strict=True):
                if network and takes_network(connection, arriving, row, outcome):
                    arriving.add(network)
                elif outcome.is_new:
                    arriving.outdate(row.id, row.digest)
        return sum(outcome.is_new for outcome in outcomes)

    def fold(self) -> bool:
        """Fold the log into the file, so that the file alone is whole. `put` and `merge` do it.

        False where a reader kept it from finishing: nothing is lost, and the next fold does the rest.
        """
        return self._writing().fold()

    def check(self) -> None:
        """Raise `StoreError` unless the file under the writer's path is the one it has open, as it left it."""
        self._writing().check()

    def merge(self, other: str | os.PathLike[str], *, prefer_other: bool = False) -> MergeReport:
        """Add the runs of another store, all or none of them, by the rules of `put`; merging again changes nothing.

        Where both have another final result of a run, this store's stays or, with `prefer_other`, the other's does; an
        equal one brings artefacts that a lean copy left out.

        Kept networks come along where the run's record is the other store's, or equal to it.
        """
        return self._merge(other, prefer_other=prefer_other)

    def _merge(self, other: str | os.PathLike[str], *, prefer_other: bool = False, carry: bool = True) -> MergeReport:
        """`merge`; without `carry`, networks stay where they are."""
        writer = self._writing()
        with Store.open(other) as source, Arrivals(self.path) as arriving, writer.transaction(arriving) as connection:
            merging = Merging(connection, arriving, prefer_other)
            for row in source.verified_rows():
                new = row.repacked() if source._folder else row
                # Looked for now, not before: another process may have recorded the run just before it was read.
                merging.add(new, source.network if carry and source._has_network(row) else None)
        return merging.report()

    def copy(
        self, target: str | os.PathLike[str], *, overwrite: bool = False, artefacts_of: Collection[str] | None = None
    ) -> None:
        """Write a consistent copy of the store, as it is now, to `target`; another process may be writing meanwhile.

        Every run of the copy is verified; damage is an error, and leaves nothing.
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
            with explained(file), arriving_with(file) as arriving:
                # The blobs of a store that was joined or unpacked are not compressed as others are.
                repack, replaced = self._folder is not None, file.exists()

                def carry_networks(digests: Mapping[str, str]) -> None:
                    for run in sorted(self._carried(digests)) if artefacts_of is None else ():
                        if network := self._network_still(run, digests[run]):
                            arriving.add(network)
                    if replaced:
                        arriving.clear(digests)
                    arriving.place()

                write_copy(self._connection, self.path, file, carry_networks, artefacts_of, repack=repack)
        finally:
            lock.release()

    def remove(self, runs: Collection[str]) -> int:
        """Remove runs and their kept networks, all or none of them, and return how many there were."""
        with Arrivals(self.path) as arriving, self._writing().transaction(arriving) as connection:
            count = connection.executemany("DELETE FROM runs WHERE id = ?", [(run,) for run in runs]).rowcount
            connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")
            for run in runs:
                arriving.outdate(run)
        return count
