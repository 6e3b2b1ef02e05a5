"""What a person sees while a fleet trains."""

import sys
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dst_lab.fleet.loop import Fleet


class Display:
    """A live line on a terminal; elsewhere one line an evaluation. Pass it as a fleet's `report`."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._fleet: Fleet | None = None
        self._bar: Progress | None = None
        self._rows = 0
        self._drawn = 0.0

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, fleet: Fleet) -> None:
        if fleet is not self._fleet:
            self._begin(fleet)
        evaluated = len(fleet.history) != self._rows
        self._rows = len(fleet.history)
        if not self._bar:
            if evaluated:
                print(f"{self._title(fleet)}: step {fleet.step}/{fleet.steps}, {_losses(fleet)}", file=sys.stderr)
            return
        if evaluated or fleet.step == fleet.steps or time.monotonic() - self._drawn > 0.1:
            self._drawn = time.monotonic()
            rate = (fleet.step - self._first) / max(self._drawn - self._started, 1e-9)
            self._bar.update(self._line, completed=fleet.step, rate=f"{rate:,.0f} steps/s", losses=_losses(fleet))

    def _begin(self, fleet: Fleet) -> None:
        self._fleet, self._rows = fleet, len(fleet.history)
        self._first, self._started = fleet.step - 1, time.monotonic()
        if not self.console.is_terminal:
            return
        if not self._bar:
            columns = (
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"),
                TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[losses]}"),
            )  # fmt: skip
            self._bar = Progress(*columns, console=self.console)
            self._bar.start()
        self._line = self._bar.add_task(self._title(fleet), total=fleet.steps, rate="", losses="")

    def _title(self, fleet: Fleet) -> str:
        config = fleet.configs[0]
        runs = f"{fleet.wanted} run" + "s" * (fleet.wanted != 1)
        return f"{config.task} {config.estimator.name}, {runs}"


def _losses(fleet: Fleet) -> str:
    if not fleet.history:
        return ""
    row = fleet.history[-1][1]["validation_loss"]
    if np.isnan(row).all():
        return "no finite loss"
    return f"validation loss: best {np.nanmin(row):.4g}, median {np.nanmedian(row):.4g}"
