"""Where the data lie: the folder asked for, else DST_DATA, else the user's cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .catalogue import File, Source

VARIABLE = "DST_DATA"


def data_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder (or the prepared file) to read from; it need not exist yet."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_folder()


def cache_folder() -> Path:
    """Return the folder that this platform keeps for what can be fetched again."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        base = Path(xdg)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path.home() / ".cache"
    return base / "decoupled-st"


def present(source: Source, root: Path) -> dict[File, Path]:
    """Return the files of a data set that are there, each at the first place that has it."""
    places = {}
    for file in source.files:
        path = next((place for place in source.places(root, file) if place.exists()), None)
        if path is not None:
            places[file] = path
    return places
