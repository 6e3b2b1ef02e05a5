"""What a store says when something is wrong: what happened, to which file, and what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dst_lab.replace import WriteError

SAFE = "what was recorded before is safe"
RESTORE = (
    "Restore it from a copy, or bring out what can be read with `sqlite3 FILE .recover`; runs that are missing then "
    "can be trained again."
)

# SQLite's own words, which are the same in every version; its error codes reach Python only from 3.11 on.
_SENTENCES = {
    "disk is full": f"the disk is full ({{error}}); {SAFE}. Free some space and run the same command again.",
    "disk i/o error": f"the disk refused to read or write ({{error}}): it may be full, over a quota or a file-size "
    f"limit, or failing; {SAFE}. Make room or move the store, and run the same command again.",
    "readonly database": f"it cannot be written ({{error}}); {SAFE}. Make the file and its folder writable, or work on "
    "a copy made with `dst copy`.",
    "is locked": f"another process keeps it busy ({{error}}); {SAFE}. Try again when that process has finished.",
    "not a database": "it is not a dst store ({error}). Give another path; the file was left as it is.",
    **dict.fromkeys(
        ("malformed", "codec can't decode", "could not decode", "no such"),
        f"the file is damaged ({{error}}). {RESTORE}",
    ),
    "unable to open": f"it cannot be opened ({{error}}); {SAFE}. Look at the permissions of the file and of its "
    "folder; a store that was not closed has a `-wal` file beside it, and can only be read where the folder is "
    "writable.",
}


class StoreWarning(UserWarning):
    """A store can be read, but not all of it counts. The message says what does not."""


class StoreError(Exception):
    """A store could not do what was asked. The message is meant for the person at the keyboard."""


class DamagedRunError(StoreError):
    """A run of a store that can be read otherwise is damaged."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite, or of writing a file, into a `StoreError` about the store at `path`."""
    try:
        yield
    except WriteError as error:
        raise StoreError(str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite's own message is damaged
        for words, meaning in _SENTENCES.items():
            if words in str(error).lower():
                raise StoreError(f"{path}: {meaning.format(error=error)}") from error
        raise StoreError(f"{path}: the store could not be used ({error}); {SAFE}.") from error
