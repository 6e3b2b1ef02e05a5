"""What can be asked of the runs in a store: the runs, all that was recorded of each, and whether it is whole."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dst_lab.store.contents import blob, history, networks, rows
from dst_lab.store.disk.connection import Connection, check_whole
from dst_lab.store.errors import RESTORE, DamagedRunError, StoreError, explained
from dst_lab.store.record import Run, Series, identify


class RecordedRuns:
    """The runs of a store that is open, as its readers see them; `Store` opens one, and writes."""

    def __init__(self, path: Path, connection: Connection) -> None:
        self.path = path
        self._places: tuple[Path, ...] = (path,)  # stores with networks beside them: of a folder, every slice
        self._reader = connection
        self._left_out: set[str] = set()

    @property
    def _connection(self) -> Connection:
        return self._reader

    def notes(self) -> dict[str, str]:
        return {}

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
        rows_read = self._query(
            f"SELECT id, config, status, detail, provenance FROM runs WHERE {where} ORDER BY key", *chosen.values()
        )
        return [self._run(*columns) for columns in rows_read if columns[0] not in self._left_out]

    def history(self, run_id: str) -> dict[str, Series]:
        """The metrics of a run over its steps."""
        bodies = self._about(run_id, "SELECT body FROM histories WHERE run = ?")
        with self._intact(run_id, "history"):
            ((body,),) = bodies
            return history.unpack(body)

    def artefacts(self, run_id: str) -> dict[str, npt.NDArray[Any]]:
        """The small arrays that were kept of a run."""
        bodies = self._about(run_id, "SELECT body FROM artefacts WHERE run = ? ORDER BY rowid")
        with self._intact(run_id, "artefacts"):
            return {name: array for (body,) in bodies for name, array in blob.unpack(body).items()}

    def network(self, run_id: str) -> networks.Network:
        """The network of a run that was kept; `StoreError` where it was not, or is not the one of this record."""
        ((digest, status),) = self._about(run_id, "SELECT digest, status FROM runs WHERE key = ?")
        if status in ("diverged", "failed"):
            raise StoreError(f"run {run_id} {status}, and such a run leaves no network.")
        return networks.read_among(self._places, run_id, digest.hex())

    def _network_still(self, run: str, digest: str) -> networks.Network | None:
        """The network of a result that was there a moment ago; None where another process has removed both since."""
        try:
            return networks.read_among(self._places, run, digest)
        except StoreError:
            if self._query("SELECT 1 FROM runs WHERE id = ? AND digest = ?", run, bytes.fromhex(digest)):
                raise
            return None

    def kept(self) -> set[str]:
        """The ids of the runs whose network, that of the result recorded here, lies beside the store."""
        digests, finished = self._digests(), self.finished()
        final = {run: digest for run, digest in digests.items() if run in finished}
        return {run for place in self._places for run in networks.kept_of(place, final)}

    def _carried(self, digests: Mapping[str, str]) -> set[str]:
        """The runs whose networks a copy takes along. In one store a network of another result is an error; of several
        slices, another may have the result that counts."""
        if len(self._places) == 1:
            return networks.kept(self._places[0], digests)
        return {run for place in self._places for run in networks.kept_of(place, digests)}

    def _digests(self) -> dict[str, str]:
        """The fingerprint of every record, by the id of its run."""
        return {run: digest.hex() for run, digest in self._query("SELECT id, digest FROM runs")}

    def _has_network(self, row: rows.StoredRow) -> bool:
        return row.is_final and bool(self._carried({row.id: row.digest}))

    def provenance(self, run_id: str) -> dict[str, Any]:
        """Where, when and with what a run was trained."""
        bodies = self._about(
            run_id, "SELECT body FROM provenance WHERE id = (SELECT provenance FROM runs WHERE key = ?)"
        )
        with self._intact(run_id, "provenance"):
            ((body,),) = bodies
            return dict(json.loads(body))

    def _query(self, sql: str, *values: object) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(sql, values).fetchall()

    def _about(self, run_id: str, sql: str) -> list[Any]:
        key = self._query("SELECT key FROM runs WHERE id = ?", run_id)
        if not key:
            raise StoreError(f"{self.path} holds no run {run_id!r}. `dst show --group id` lists those there are.")
        return self._query(sql, key[0][0])

    def _run(self, run: str, config: str, status: str, detail: str, provenance: str) -> Run:
        with self._intact(run, "config"):
            if identify(config) != run:
                raise ValueError("it does not belong to the id")
            f"{status}{detail}".encode()  # ValueError where they are no text
            return Run(
                id=run, config=json.loads(config), status=status, detail=json.loads(detail), provenance_id=provenance
            )

    def check_whole(self) -> None:
        """Raise `StoreError` where the file does not hold together, or anything of a run in it is damaged.

        Unpacks every history: for 7,000 runs a second.
        """
        self.check_pages()
        self._verify_runs()

    def check_pages(self) -> None:
        """Raise `StoreError` where the file does not hold together, so that runs may be missing from what is read."""
        with explained(self.path):
            check_whole(self._connection, self.path)

    def verified_rows(self) -> Iterator[rows.StoredRow]:
        """Every row, as of one moment, verified so that damage does not spread by merging."""
        with explained(self.path):
            self._connection.execute("BEGIN")
            check_whole(self._connection, self.path)
            for row in rows.read_all(self._connection):
                with self._intact(row.id, "record"):
                    row.verify()
                yield row
            self._connection.execute("COMMIT")

    def leave_out_damaged(self) -> dict[str, str]:
        """List only the runs that are whole from now on; the others by their names, and what is wrong with them.

        Of a file that does not hold together, as far as it can be read: `check_pages` tells of the rest.
        """
        with explained(self.path):
            damaged = list(rows.damaged(self._connection))
        self._left_out = {row.id for row, _ in damaged}
        return {row.name: why for row, why in damaged}

    def _verify_runs(self) -> None:
        """Raise `DamagedRunError` unless every run is whole."""
        if len(self._places) > 1:
            return  # the slices of a folder were verified when they were joined
        with explained(self.path):
            for row in rows.read_all(self._connection):
                with self._intact(row.id, "record"):
                    row.verify()

    @contextmanager
    def _intact(self, run_id: str, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedRunError(f"{self.path}: the {what} of run {run_id} is damaged ({error}). {RESTORE}") from error
