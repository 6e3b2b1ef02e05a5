"""What fine_tuning.py, guidance.py and masked.py share: work for several processes, and rows in a table of runs."""

import csv
import datetime
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

Task = TypeVar("Task")
STARTED = float(os.environ.get("STARTED", time.time()))


def shared(tasks: Iterable[Task], folder: Path, seconds: float) -> Iterator[Task]:
    """Those tasks that no other process with this folder has taken, until so many seconds after the start."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, task in enumerate(tasks):
        if elapsed() > seconds:
            return
        try:
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        yield task


def elapsed() -> float:
    """Seconds since this process began, or since STARTED."""
    return time.time() - STARTED


def wait(folder: Path, ended: Callable[[], int], seconds: float) -> bool:
    """True as soon as all tasks that were taken have ended; False when so many seconds are over."""
    while ended() < len(list(folder.iterdir())):
        if elapsed() > seconds:
            return False
        time.sleep(1)
    return True


def write(file: Path, columns: tuple[str, ...], row: dict[str, Any]) -> None:
    """Append a row in one piece; provenance is added."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    row = {**row, "provenance.device_name": device, "provenance.torch": torch.__version__, "provenance.started": now}
    columns = (*columns, "provenance.seconds", "provenance.device_name", "provenance.torch", "provenance.started")
    text = {key: _as_text(value) if isinstance(value, float | bool) else value for key, value in row.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        try:
            with file.open("x", newline="") as lines:
                csv.DictWriter(lines, columns, lineterminator="\n").writeheader()
        except FileExistsError:
            pass
    with file.open("a", newline="") as lines:
        csv.DictWriter(lines, columns, restval="", lineterminator="\n").writerow(text)
    print(*(f"{key}={value}" for key, value in text.items() if not key.startswith("provenance")), flush=True)


def _as_text(value: float | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else json.dumps(value)


def read(files: Iterable[Path]) -> list[dict[str, str]]:
    """The rows of several tables."""
    rows = []
    for file in filter(Path.exists, files):
        with file.open(newline="") as lines:
            rows += list(csv.DictReader(lines))
    return rows
