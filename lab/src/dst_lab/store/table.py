"""A table of runs as text, for records that another program made: `*runs.csv`, which is read like a store.

A column of a bare name is a field of the config: `task`, `estimator` (its name; `estimator.tau_b` and so on are its
numbers), `seed`, and whatever else there is. `history.NAME` is a metric and `provenance.NAME` says where it was
measured; `status` is "done" where there is none. An empty cell is absent; numbers, true and false are read as such, all
other cells are text. Lines of one config are the evaluations of one run at their `step`; without this column a line
is the end of a run, at the config's `steps`.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from dst_lab.runs import canonical
from dst_lab.store.errors import StoreError
from dst_lab.store.record import Record, Series


def read(path: Path) -> list[Record]:
    """The runs of a table, in the order of their first lines; `StoreError` names what is wrong with a line."""
    runs: dict[str, list[dict[str, Any]]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark of UTF-8 before it
            for cells in csv.DictReader(file):
                line = _parsed(cells)
                runs.setdefault(canonical(line["config"]), []).append(line)
        return [_record(lines) for lines in runs.values()]
    except (csv.Error, ValueError, TypeError, StoreError) as error:
        raise StoreError(f"{path} is no table of runs: {error}") from error


def _parsed(line: dict[str, Any]) -> dict[str, Any]:
    """The cells of a line by what they belong to."""
    parsed: dict[str, Any] = {"config": {}, "history": {}, "provenance": {}, "status": "done", "step": None}
    if None in line or None in line.values():
        raise ValueError(f"a line has as many cells as there are columns, got {line}")
    for column, cell in line.items():
        part, _, name = column.partition(".")
        if cell == "":
            continue
        if part in ("history", "provenance"):
            parsed[part][name] = _value(cell)
        elif column in ("status", "step"):
            parsed[column] = _value(cell)
        elif part == "estimator":
            parsed["config"].setdefault(part, {})[name or "name"] = _value(cell)
        else:
            parsed["config"][column] = _value(cell)
    return parsed


def _record(lines: list[dict[str, Any]]) -> Record:
    """The run of these lines, which have the same config."""
    config = lines[0]["config"]
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        step = config.get("steps", 0) if line["step"] is None else line["step"]
        for name, value in line["history"].items():
            points.setdefault(name, []).append((step, value))
    history = {
        name: Series(np.array([step for step, _ in pairs]), np.array([value for _, value in pairs], dtype=np.float64))
        for name, pairs in points.items()
    }
    return Record(config=config, status=lines[-1]["status"], history=history, provenance=lines[-1]["provenance"])


def _value(cell: str) -> Any:
    """A number, true or false, or the text itself."""
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        return cell
