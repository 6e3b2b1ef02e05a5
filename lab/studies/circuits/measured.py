"""What was measured of the trained networks as circuits: `circuits.csv` next to the records, by run."""

import csv
import io
from dataclasses import dataclass, fields
from pathlib import Path

from dst_lab import replace
from dst_lab.records import Rows

NAME = "circuits.csv"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A trained network as a circuit.

    Attributes:
        run: its id.
        gates, simplified: as trained, and after simplification.
        depth: of the simplified circuit.
        correct: test images that the compiled circuit classifies correctly.
        simplify_s, compile_s: seconds.
        images_per_s: of the compiled circuit with one thread.
        device: on which that was measured.
    """

    run: str
    gates: int
    simplified: int
    depth: int
    correct: int
    simplify_s: float
    compile_s: float
    images_per_s: float
    device: str


def read(rows: Rows) -> dict[str, Measured]:
    """What was measured, by run; empty where there is no such file."""
    place = rows.store.path
    file = (place if place.is_dir() else place.parent) / NAME
    if not file.is_file():
        return {}
    with file.open(newline="") as lines:
        measured = [_read(line) for line in csv.DictReader(lines)]
    return {one.run: one for one in measured}


def write(file: Path, measured: list[Measured]) -> None:
    """All of them, one line each."""
    names = [field.name for field in fields(Measured)]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(one, name) for name in names] for one in measured)
    replace.write_text(file, lines.getvalue())


def _read(line: dict[str, str]) -> Measured:
    types = {"int": int, "float": float, "str": str}
    values = {field.name: types[getattr(field.type, "__name__", str(field.type))] for field in fields(Measured)}
    return Measured(**{name: make(line[name]) for name, make in values.items()})
