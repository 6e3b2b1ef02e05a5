"""Fetching what is missing: to a temporary name, verified, and only then to the final one."""

from __future__ import annotations

import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from .catalogue import DataError, File, Source
from .integrity import DamagedFileError, expectation, flaw, temporary_beside, unpacked, written_whole

SECONDS_OF_SILENCE = 30
CHUNK = 1 << 16


def fetch(name: str, source: Source, missing: Iterable[File], root: Path) -> None:
    """Download the missing files of a data set to their usual places under `root`."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        if source.archived:
            _fetch_archive(name, source, missing, root, progress)
        else:
            for file in missing:
                _fetch_file(name, source, file, root, progress)


def _fetch_file(name: str, source: Source, file: File, root: Path, progress: Progress) -> None:
    target = next(source.places(root, file))
    address = source.address + target.name
    by_hand = f"put that file into {target.parent}"
    with _explained(f"{target.name} of {name}", address, by_hand), temporary_beside(target) as part:
        _download(address, part, progress)
        unpacked(part, file, gzipped=target.suffix == ".gz")
        part.replace(target)


def _fetch_archive(name: str, source: Source, missing: Iterable[File], root: Path, progress: Progress) -> None:
    targets = {place.name: (file, place) for file in missing for place in [next(source.places(root, file))]}
    folder = root / source.folders[0]
    archive = PurePosixPath(source.address).name
    with _explained(name, source.address, f"put {', '.join(targets)} of that archive into {folder}"):
        with temporary_beside(folder / archive) as part:
            _download(source.address, part, progress)
            with tarfile.open(part, "r:gz") as tar:
                for member in tar:
                    # Taken by its bare name: what path an archive announces never decides where we write.
                    wanted = targets.get(PurePosixPath(member.name).name)
                    stream = tar.extractfile(member) if wanted and member.isfile() else None
                    if wanted and stream:
                        file, target = wanted
                        _place(stream.read(file.size + 1), file, target)
                        del targets[target.name]
        if targets:
            raise tarfile.TarError(f"the archive lacks {', '.join(targets)}")


def _place(raw: bytes, file: File, target: Path) -> None:
    found = flaw(raw, file)
    if found:
        raise DamagedFileError(target, expectation(file), found)
    with written_whole(target) as stream:
        stream.write(raw)


def _download(address: str, part: Path, progress: Progress) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "decoupled-st"})
    with urllib.request.urlopen(request, timeout=SECONDS_OF_SILENCE) as response:
        announced = response.headers.get("Content-Length")
        total = int(announced) if announced else None
        task = progress.add_task(PurePosixPath(address).name, total=total)
        part.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as stream:
            while chunk := response.read(CHUNK):
                stream.write(chunk)
                progress.advance(task, len(chunk))
    # http.client takes a connection that closes early for the end of the file.
    came = part.stat().st_size
    if total is not None and came != total:
        raise ConnectionError(f"the connection ended after {came} of {total} bytes")


@contextmanager
def _explained(what: str, address: str, by_hand: str) -> Iterator[None]:
    try:
        yield
    except DamagedFileError as error:
        reason = f"expected {error.expected}, found {error.found}"
        raise DataError(_sentence(what, address, reason, by_hand)) from error
    except (OSError, HTTPException, EOFError, zlib.error, tarfile.TarError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = str(getattr(error, "reason", None) or error)
        raise DataError(_sentence(what, address, reason, by_hand)) from error


def _sentence(what: str, address: str, reason: str, by_hand: str) -> str:
    return f"could not fetch {what} from {address} ({reason}): try again, or {by_hand} by hand"
