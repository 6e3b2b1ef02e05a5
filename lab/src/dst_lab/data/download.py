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

from dst_lab.replace import draft, put_in_place, write_bytes

from .catalogue import DataError, File, Source
from .integrity import DamagedFileError, expectation, flaw, unpacked

SECONDS_OF_SILENCE = 30
CHUNK = 1 << 16


def fetch(name: str, source: Source, missing: Iterable[File], root: Path) -> None:
    """Download the missing files of a data set to their usual places under `root`."""
    targets = {file: next(source.places(root, file)) for file in missing}
    by_hand = f"put {', '.join(target.name for target in targets.values())} by hand into {root / source.folders[0]}"
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        if source.archived:
            with _explained(name, source.address, by_hand):
                _fetch_archive(source.address, targets, progress)
        else:
            for file, target in targets.items():
                address = source.address + target.name
                with _explained(f"{target.name} of {name}", address, by_hand):
                    _fetch_file(address, file, target, progress)


def _fetch_file(address: str, file: File, target: Path, progress: Progress) -> None:
    with draft(target) as part:
        _download(address, part, progress)
        unpacked(part, file, gzipped=target.suffix == ".gz")
        put_in_place(part, target)


def _fetch_archive(address: str, targets: dict[File, Path], progress: Progress) -> None:
    wanted = {target.name: (file, target) for file, target in targets.items()}
    folder = next(iter(targets.values())).parent
    with draft(folder / PurePosixPath(address).name) as part:
        _download(address, part, progress)
        with tarfile.open(part, "r:gz") as tar:
            for member in tar:
                # Taken by its bare name: what path an archive announces never decides where we write.
                name = PurePosixPath(member.name).name
                stream = tar.extractfile(member) if name in wanted and member.isfile() else None
                if stream:
                    file, target = wanted.pop(name)
                    _place(stream.read(file.size + 1), file, target)
    if wanted:
        raise tarfile.TarError(f"the archive lacks {', '.join(wanted)}")


def _place(raw: bytes, file: File, target: Path) -> None:
    fault = flaw(raw, file)
    if fault:
        raise DamagedFileError(target, expectation(file), fault)
    write_bytes(target, raw)


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
    return f"could not fetch {what} from {address} ({reason}): try again, or {by_hand}"
