"""The chunks in progress: a folder next to the store, with one checkpoint each. Whoever writes the store owns it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from dst_lab.fleet.checkpoint import SECONDS, Checkpoint, runs_of
from dst_lab.replace import resolved


def folder_of(store: Path) -> Path:
    """The folder of a store's checkpoints. It lies next to the file itself, not next to a link to the file."""
    file = resolved(store) if store.is_symlink() else store
    return file.with_name(f"{file.name}.checkpoints")


class Checkpoints:
    """Where the chunks of a plan are saved while they are trained.

    Args:
        folder: made when it is needed, removed when it is empty.
        seconds: between one checkpoint and the next.
        tell: given a sentence where the disk takes none, once, and where one cannot be continued.
    """

    def __init__(self, folder: Path, seconds: float = SECONDS, tell: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self.seconds, self._tell = folder, seconds, tell
        self._was_refused = False

    def of(self, runs: Sequence[str]) -> Checkpoint:
        """The checkpoint of a chunk with these runs, in this order."""
        return Checkpoint(self.folder / f"{_name(runs)}.npz", self.seconds, self._refused, self._tell)

    def started(self, pending: Collection[str]) -> list[list[str]]:
        """The chunks saved here that are still wanted whole, as they were put together."""
        chunks = [runs for path, runs in self._saved() if runs and path.stem == _name(runs)]
        return [runs for runs in chunks if all(run in pending for run in runs)]

    def tidy(self, finished: Collection[str]) -> None:
        """Remove what cannot be continued: what killed processes left half-written or `shared`, damaged files, and
        chunks of which a run is already recorded (the process was killed in between, or the plan changed)."""
        saved = self._saved()
        for path in (path for path, runs in saved if not runs):
            self._tell(f"the checkpoint {path} is damaged: its runs start again")
        over = [path for path, runs in saved if not runs or any(run in finished for run in runs)]
        for path in (*over, *self.folder.glob("*.part"), *self.folder.glob("*.shared")):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    @contextmanager
    def shared(self) -> Iterator[Path | None]:
        """A file in the folder for the time of a block: processes, on any machine, that see it share the folder.
        None where it cannot be made."""
        mark = self.folder / f"{uuid4().hex}.shared"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError as error:
            self._refused(error)
            yield None
            return
        try:
            yield mark.absolute()
        finally:
            with suppress(OSError):
                mark.unlink(missing_ok=True)

    def _saved(self) -> list[tuple[Path, list[str] | None]]:
        saved = []
        for path in sorted(self.folder.glob("*.npz")):
            with suppress(OSError):
                saved.append((path, runs_of(path)))
        return saved

    def _refused(self, error: OSError) -> None:
        if not self._was_refused:
            self._was_refused = True
            self._tell(
                f"no checkpoint could be written in {self.folder} ({error.strerror or error}); training goes on, but "
                "if it is interrupted these runs start again"
            )


def _name(runs: Sequence[str]) -> str:
    return sha256(" ".join(runs).encode()).hexdigest()[:16]
