"""Files are read whole and verified."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from .catalogue import DataError, File


class DamagedFileError(DataError):
    """A file whose content is not what it should be."""

    def __init__(
        self, path: Path, expected: str, found: str, remedy: str = "delete it to have it fetched again"
    ) -> None:
        # All four as arguments of the base, so that the error survives the way back from another process.
        super().__init__(path, expected, found, remedy)
        self.path = path
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path} is damaged: expected {self.expected}, found {self.found}; {self.remedy}"


def expectation(file: File) -> str:
    """Say what the unpacked bytes of a file should be."""
    return f"{file.size} bytes with sha256 {file.sha256}"


def flaw(raw: bytes, file: File) -> str | None:
    """Say what is wrong with the unpacked bytes of a file; None if they are the right ones."""
    if len(raw) > file.size:
        return f"more than {file.size} bytes"
    if len(raw) < file.size:
        return f"{len(raw)} bytes"
    digest = hashlib.sha256(raw).hexdigest()
    return None if digest == file.sha256 else f"sha256 {digest}"


def unpacked(path: Path, file: File, *, gzipped: bool | None = None) -> bytes:
    """Return the verified, unpacked bytes of a file; by default it is gzipped if its name ends in .gz."""
    if gzipped is None:
        gzipped = path.suffix == ".gz"
    raw = b""
    try:
        # One byte more than expected: enough to see that a file is too long, and to reach the CRC at a gzip's end.
        with gzip.open(path, "rb") if gzipped else open(path, "rb") as stream:
            raw = stream.read(file.size + 1)
        fault = flaw(raw, file)
    except EOFError:
        fault = "a gzip stream that ends early"
    except (gzip.BadGzipFile, zlib.error) as error:
        fault = f"a corrupt gzip stream ({error})"
    except OSError as error:
        raise DataError(f"could not read {path}: {error.strerror or error}") from error
    if fault:
        raise DamagedFileError(path, expectation(file), fault)
    return raw
