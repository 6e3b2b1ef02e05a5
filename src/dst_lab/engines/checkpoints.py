"""The chunks in progress: a folder beside the store, with one checkpoint each. Whoever writes the store owns it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from dst_lab.fleet.checkpoint import SECONDS, Checkpoint, runs_of


class Checkpoints:
    """Where the chunks of a plan are saved while they are trained.

    Args:
        folder: made when it is needed, removed when it is empty.
        seconds: between one checkpoint and the next.
        tell: given a sentence, once, where the disk takes none.
    """

    def __init__(self, folder: Path, seconds: float = SECONDS, tell: Callable[[str], None] | None = None) -> None:
        self.folder, self.seconds, self._tell = folder, seconds, tell

    def of(self, runs: Sequence[str]) -> Checkpoint:
        """The checkpoint of a chunk with these runs, in this order."""
        return Checkpoint(self.folder / f"{_name(runs)}.npz", self.seconds, self._refused)

    def begun(self, pending: Collection[str]) -> list[list[str]]:
        """The chunks saved here that are still wanted whole, as they were put together."""
        chunks = [runs for path, runs in self._saved() if runs and path.stem == _name(runs)]
        return [runs for runs in chunks if all(run in pending for run in runs)]

    def tidy(self, finished: Collection[str]) -> None:
        """Remove what nobody can go on from: what killed processes left half-written or `shared`, damaged files, and
        chunks of which a run is already recorded (the process was killed in between, or the plan changed)."""
        saved = [path for path, runs in self._saved() if not runs or any(run in finished for run in runs)]
        for path in (*saved, *self.folder.glob("*.part"), *self.folder.glob("*.shared")):
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
        found = []
        for path in sorted(self.folder.glob("*.npz")):
            with suppress(OSError):
                found.append((path, runs_of(path)))
        return found

    def _refused(self, error: OSError) -> None:
        tell, self._tell = self._tell, None
        if tell:
            tell(
                f"no checkpoint could be written in {self.folder} ({error.strerror or error}); training goes on, but "
                "if it is interrupted these runs begin anew"
            )


def _name(runs: Sequence[str]) -> str:
    return sha256(" ".join(runs).encode()).hexdigest()[:16]
