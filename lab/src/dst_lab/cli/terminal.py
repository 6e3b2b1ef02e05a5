"""What a person sees in a terminal: text, which is escaped since a store may come from another person, and progress."""

import os
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TextIO

import numpy as np
import rich.console
from rich.console import RenderableType
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from dst_lab.cards import shown
from dst_lab.engines.engine import Progress
from dst_lab.fleet.loop import Fleet
from dst_lab.store import Record

UNWRITTEN = "what dst prints could not be written"


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line of text that may come from a store or a file's name.

    Where its reader has gone (`dst reproduce | head -1`), or a log cannot be written, nothing more is printed, and the
    work goes on. Results that cannot be written are an error.
    """
    stream = file or sys.stdout
    try:
        print(shown(text), file=stream, flush=True)
    except OSError as error:
        fall_silent(stream)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise OSError(f"{UNWRITTEN}: {error.strerror}") from error


def fall_silent(stream: TextIO | IO[str]) -> None:
    """Let what is still written to the stream go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Console(rich.console.Console):
    """Takes brackets, colons and escape sequences in text for what they are: characters.

    Falls silent where its reader has gone (`dst show | head`), instead of ending the process: it may be training.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(shown(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError as error:
            raise OSError(f"{UNWRITTEN}: {error.strerror}") from error

    def on_broken_pipe(self) -> None:
        self.quiet = True
        fall_silent(self.file)


class _TwoLines(Bar):
    """What is trained and its losses, cut where the terminal is narrow; below it bar, steps and time left, which never
    are."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            text = ", ".join(filter(None, (task.description, task.fields["losses"])))
            yield Text(text, no_wrap=True, overflow="ellipsis")
            yield self.make_tasks_table([task])


class Display:
    """Two live lines on a terminal; elsewhere one line per evaluation. Pass it as the `progress` of a job; where runs
    are trained `elsewhere`, it shows chunks as they come back."""

    def __init__(self, console: Console | None = None, elsewhere: bool = False) -> None:
        self.console, self.elsewhere = console or Console(stderr=True), elsewhere
        # Weak, so that a fleet's memory is free again before the next one is sized.
        self._fleet: weakref.ref[Fleet] | None = None
        self._bar: Bar | None = None
        self._line = TaskID(0)
        self._rows, self._drawn, self._last = 0, 0.0, ""
        self._paths: list[dict[str, str]] = []

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def pause(self) -> None:
        """End the live lines; the next fleet begins new ones."""
        if self._bar:
            self._bar.stop()
        self._bar, self._fleet = None, None

    def __call__(self, progress: Progress) -> None:
        if progress.message:
            self.say(f"dst: {progress.message}")
        elif progress.fleet:
            self._step(progress.fleet)
        elif self.elsewhere:
            self._recorded(progress.records, progress.done, progress.wanted)

    def _step(self, fleet: Fleet) -> None:
        if self._fleet is None or self._fleet() is not fleet:
            self._begin(fleet)
        evaluated = len(fleet.history) != self._rows
        self._rows = len(fleet.history)
        if not self._bar:
            if evaluated:
                self.say(_summary(fleet))
            return
        if evaluated or fleet.step == fleet.steps or time.monotonic() - self._drawn > 0.1:
            self._drawn = time.monotonic()
            rate = (fleet.step - self._first) / max(self._drawn - self._started, 1e-9)
            self._last = _summary(fleet)
            self._bar.update(self._line, completed=fleet.step, rate=f"{rate:,.0f} steps/s", losses=_losses(fleet))

    def _begin(self, fleet: Fleet) -> None:
        self._fleet, self._rows = weakref.ref(fleet), sum(step < fleet.step for step, _ in fleet.history)
        self._first, self._started = fleet.step - 1, time.monotonic()
        self._say_path(fleet.path)
        if not self.console.is_terminal:
            return
        if self._bar:
            # Of many fleets a screen has room for the current one: those before it become lines above.
            self.say(self._last)
            self._bar.remove_task(self._line)
        else:
            self._bar = _TwoLines(
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,}/{task.total:,}"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=self.console,
                expand=True,
            )
            self._bar.start()
        self._line = self._bar.add_task(_title(fleet), total=fleet.steps, rate="", losses="")

    def _say_path(self, path: Mapping[str, str]) -> None:
        """Print once per path that a fleet is trained by it, and why not by a faster one."""
        if path and path not in self._paths:  # a run that failed took none
            self._paths.append(dict(path))
            why = f", since it is declined by {path['declined']}" if "declined" in path else ""
            self.say(f"path: {path['path']}{why}")

    def _recorded(self, records: Sequence[Record], done: int, wanted: int) -> None:
        if self.console.is_terminal and not self._bar:
            columns = (TextColumn("runs recorded"), BarColumn(None), TextColumn("{task.completed:,}/{task.total:,}"))
            self._bar = Bar(*columns, TimeRemainingColumn(), console=self.console, expand=True)
            self._bar.start()
            self._line = self._bar.add_task("", total=wanted)
        if records:
            config, where = records[0].config, f"({done}/{wanted} runs)"
            losses = [r.history["validation_loss"].values.min() for r in records if r.status == "done"]
            summary = f"best {min(losses):.4g}, median {np.median(losses):.4g}" if losses else "none"
            title = f"{config['task']} {config['estimator']['name']}, {_runs(len(records))}"
            self._say_path(
                {key: records[0].provenance[key] for key in ("path", "declined") if key in records[0].provenance}
            )
            self.say(f"{title}: validation loss: {summary} {where}")
        if self._bar:
            self._bar.update(self._line, completed=done)

    def say(self, text: str) -> None:
        """Print a line, on a terminal above the live one. Training goes on where it cannot be written."""
        with suppress(OSError):
            self.console.print(text, soft_wrap=True)


def _title(fleet: Fleet) -> str:
    config = fleet.configs[0]
    return shown(f"{config.task} {config.estimator.name}, {_runs(len(fleet.members))}")


def _runs(count: int) -> str:
    return f"{count} run" + "s" * (count != 1)


def _summary(fleet: Fleet) -> str:
    return f"{_title(fleet)}: step {fleet.step}/{fleet.steps}, {_losses(fleet)}"


def _losses(fleet: Fleet) -> str:
    if not fleet.history:
        return ""
    row = fleet.history[-1][1]["validation_loss"]
    if np.isnan(row).all():
        return "no finite loss"
    return f"validation loss: best {np.nanmin(row):.4g}, median {np.nanmedian(row):.4g}"
