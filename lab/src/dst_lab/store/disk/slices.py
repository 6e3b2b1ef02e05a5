"""A folder of stores that are read as one: slices, each of which is written once and never changes."""

from pathlib import Path

from dst_lab.store.errors import StoreError

ENDINGS = (".sqlite", ".sqlite.xz")


def slices(folder: Path) -> list[Path]:
    """The stores in a folder, by name; `StoreError` where there is none."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    if not files:
        raise StoreError(
            f"{folder} is not a file, and no folder of slices either: it holds no *{' and no *'.join(ENDINGS)}."
        )
    return files
