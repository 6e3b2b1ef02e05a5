"""Networks on their way into the folder of a store, with the records that they belong to."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from dst_lab.replace import check_place, draft, left_behind, put_in_place, write_bytes, write_draft
from dst_lab.store.contents import networks


class Arrivals:
    """Networks for the folder of the store at `path`, each a draft beside its place until the records are written.

    `place` them just before the records are there for good: it fills the places that are free, so that a process that
    is killed then leaves no record without its network. `settle` just after: what was there for other records gives
    way. Where the block ends before that, the folder is as it was. What a killed process leaves, `tidy` takes away.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = networks.folder_of(path)
        self._new_folder = False
        self._stack = ExitStack()
        self._drafts: dict[str, Path] = {}
        self._digests: dict[str, str] = {}
        self._placed: list[Path] = []
        self._outdated: set[str] = set()
        self._only: Mapping[str, str] | None = None
        self._journal: Path | None = None
        self._committed = False

    def __enter__(self) -> "Arrivals":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in self._placed:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._stack.close()
        if self._journal and not self._committed:
            with suppress(OSError):
                self._journal.unlink(missing_ok=True)
        if self._new_folder:
            with suppress(OSError):  # where it is not empty, it is in use
                self._folder.rmdir()

    def add(self, network: networks.Network) -> None:
        """Write a network beside its place."""
        path = networks.path_of(self._path, network.run)
        with networks.writing(path):
            if not self._folder.exists():
                self._folder.mkdir()
                self._new_folder = True
            check_place(path)
            part = self._stack.enter_context(draft(path))
            write_draft(part, networks.encoded(network))
        self._drafts[network.run] = part
        self._digests[network.run] = network.digest
        self._outdated.discard(network.run)

    def has(self, run: str, digest: str) -> bool:
        """True where the network of this result of the run is on its way or, with none on its way, there."""
        if run in self._drafts:
            return self._digests[run] == digest
        return networks.has_of(self._path, run, digest)

    def outdate(self, run: str, result: str = "") -> None:
        """The record of this run goes, or is now this result, without a network: one that is there is of another, left
        by a record that gave way or by a process that was killed before it wrote one."""
        if result and self.has(run, result):
            return
        self._drafts.pop(run, None)
        self._outdated.add(run)

    def clear(self, digests: Mapping[str, str]) -> None:
        """The records that were there give way to these alone, given by the ids of their runs."""
        self._only = digests

    def place(self) -> None:
        """Put those in place that stand in nobody's way; before, write down which files are about to change."""
        self._begin()
        for run, part, path in self._arriving():
            if not path.exists():
                self._placed.append(path)  # before: an interrupt may come when it is there and not yet on the disk
                with networks.writing(path):
                    put_in_place(part, path)
                del self._drafts[run]

    def settle(self) -> None:
        """Put the others in place, and remove those of records that gave way; an interrupt waits until it is done."""
        self._placed, self._committed = [], True
        try:
            self._finish()
        except Exception:
            raise
        except BaseException:
            self._finish()
            raise

    def _finish(self) -> None:
        for _, part, path in self._arriving():
            if part.exists():
                with networks.writing(path):
                    put_in_place(part, path)
        networks.remove(self._path, self._outdated)
        if self._only is not None:
            networks.remove(self._path, networks.others(self._path, self._only))
        if self._journal:
            self._journal.unlink(missing_ok=True)

    def _begin(self) -> None:
        changing = {*self._drafts, *networks.kept(self._path, self._outdated)}
        if self._only is not None:
            changing |= networks.others(self._path, self._only)
        if changing:
            self._journal = _journal_of(self._path)
            with networks.writing(self._journal):
                write_bytes(self._journal, json.dumps(sorted(changing)).encode())

    def _arriving(self) -> Iterator[tuple[str, Path, Path]]:
        for run, part in list(self._drafts.items()):
            yield run, part, networks.path_of(self._path, run)


def tidy(path: Path, digests: Callable[[], Mapping[str, str]]) -> None:
    """After a process that was killed between its records and their networks: of the files that it was about to change,
    those that belong to a record come into their places, and those that belong to none go. `digests` gives those of all
    records, by the ids of their runs.

    Called with the lock of the store at `path` held. Files that the process did not name are not touched: they may be
    of a store that is to be put back.
    """
    journal = _journal_of(path)
    if not journal.is_file():
        return
    with suppress(OSError, ValueError, TypeError):
        known = digests()
        for run in filter(networks.is_id, json.loads(journal.read_bytes())):
            place, digest = networks.path_of(path, run), known.get(run)
            for part in left_behind(place, alone=True):
                if networks.record_of(part) == digest:
                    put_in_place(part, place)
                else:
                    part.unlink()
            if digest is None or networks.record_of(place) not in ("", digest):  # a damaged one says nothing
                place.unlink(missing_ok=True)
        journal.unlink()


def _journal_of(path: Path) -> Path:
    return networks.folder_of(path) / "changing.json"


@contextmanager
def arriving_with(path: Path) -> Iterator[Arrivals]:
    """Networks that come with a new file at `path`, which takes its place inside the block: they settle with it, even
    where an interrupt is raised just after."""
    before = _identity(path)
    with Arrivals(path) as arriving:
        try:
            yield arriving
        except BaseException:
            if _identity(path) != before:
                arriving.settle()
            raise
        arriving.settle()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
