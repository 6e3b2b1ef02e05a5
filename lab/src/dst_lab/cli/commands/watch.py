"""`dst watch`: live curves of what is trained into a store, from another terminal."""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dst_lab.cli.options.parser import add_store, add_where, at_least
from dst_lab.cli.terminal.console import Console
from dst_lab.cli.terminal.curves import Panel, Recorded, panels
from dst_lab.cli.terminal.plot import color, is_logarithmic, letter, plot
from dst_lab.configs.cards import metric as card
from dst_lab.engines.live import Chunk, Round, chunks_in, folder_of, round_in
from dst_lab.shown import shown
from dst_lab.store import StoreError
from dst_lab.store.views.conditions import Condition, parse

TALLEST, LOWEST = 16, 6
"""Rows of a plot."""


def add(commands: Any) -> None:
    """Add the command."""
    watch = commands.add_parser(
        "watch", help="live curves of what is trained into a store",
        description="Curves of the best settings that are being trained into a store, and of the best one that it "
        "holds, drawn anew while they grow. Run it beside `dst sweep`, in another terminal; Ctrl-C ends it, and "
        "nothing else.",
    )  # fmt: skip
    watch.add_argument("--metric", default="validation_loss", help="what the curves show (validation_loss)")
    add_where(watch, "only runs that fit all conditions, such as task=logic-gates 'tau_f<=0.3'")
    watch.add_argument("--top", type=at_least(int, 1), default=5, metavar="N", help="how many curves (5)")
    watch.add_argument(
        "--every", type=at_least(float, 0), default=1.0, metavar="S", help="seconds between two pictures (1)"
    )
    watch.add_argument(
        "--once",
        action="store_true",
        help="one picture, as where the output is no terminal; exit code 2 where there is no store",
    )
    add_store(watch)
    watch.set_defaults(do=_watch)


def _watch(args: argparse.Namespace) -> int:
    conditions = parse(args.where)
    if args.store.is_dir():
        args.store = args.store.resolve()  # of `.` and `..`: files beside a store are called after it
    console, recorded = Console(), Recorded(args.store)
    if args.once or not console.is_terminal:
        recorded.refresh()
        console.print(_picture(args, conditions, recorded, console, TALLEST + 100))
        return 0
    picture: RenderableType = ""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                picture = _picture_or_reason(args, conditions, recorded, console)
                live.update(picture, refresh=True)
                time.sleep(max(args.every, 0.1))
    except KeyboardInterrupt:
        console.print(picture)  # the last one stays
    return 0


def _picture_or_reason(
    args: argparse.Namespace, conditions: list[Condition], recorded: Recorded, console: Console
) -> RenderableType:
    """The picture or, while there is none to be had, why."""
    if not args.store.exists():
        return Text(shown(f"there is no store at {args.store} yet: waiting for it (Ctrl-C ends this)"))
    try:
        recorded.refresh()
        return _picture(args, conditions, recorded, console, console.height)
    except StoreError as error:
        return Text(shown(f"{error}\n(looking again; Ctrl-C ends this)"))


def _picture(
    args: argparse.Namespace, conditions: list[Condition], recorded: Recorded, console: Console, height: int
) -> RenderableType:
    """All that there is to see, in at most `height` lines where that is possible."""
    folder = folder_of(args.store)
    round_, chunks = round_in(folder), [chunk for chunk in chunks_in(folder) if not chunk.process.gone]
    head = [*_standing(args.store, recorded), *_progress(round_, chunks)]
    drawn = panels(recorded, chunks, conditions, args.metric, args.top)
    parts: list[RenderableType] = list(head)
    room = height - len(head)
    for number, panel in enumerate(drawn):
        share = room // (len(drawn) - number)
        rows = max(LOWEST, min(TALLEST, share - len(panel.lines) - 6))
        parts += _drawn(panel, args.metric, console, rows)
        room -= share
    if not drawn and recorded.runs:
        condition = f" where {' and '.join(args.where)}" if args.where else ""
        parts.append(Text(shown(f"no curves of {args.metric}{condition} yet")))
    return Group(*parts)


def _standing(store: Path, recorded: Recorded) -> list[RenderableType]:
    counts: dict[str, int] = {}
    for run in recorded.runs:
        counts[run.status] = counts.get(run.status, 0) + 1
    standing = "no runs recorded yet"
    if counts:
        ends = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        standing = f"{len(recorded.runs):,} runs recorded ({ends})"
    if recorded.damaged:
        standing += f", {recorded.damaged:,} damaged (`dst show` names them)"
    return [Text(shown(f"{time.strftime('%H:%M:%S')}  {store}: {standing}"), no_wrap=True, overflow="ellipsis")]


def _progress(round_: Round | None, chunks: Iterable[Chunk]) -> list[RenderableType]:
    """How far all runs are that are wanted, and the chunks in training."""
    if round_ is None:
        return [Text("nothing is being trained into it now")]
    if round_.process.gone:
        when = time.strftime("%H:%M:%S", time.localtime(round_.process.told))
        return [
            Text(
                f"the process {round_.process.pid} was training into it and is gone (heard last at {when}); its "
                "command goes on from there"
            )
        ]
    left = round_.wanted - round_.recorded
    rate = round_.trained / round_.seconds if round_.trained else None
    lines = [_bar("this round", round_.recorded, round_.wanted, "runs", left / rate if rate else None)]
    for chunk in chunks:
        config = chunk.configs[0]
        count = len(chunk.alive)
        name = f"{config['task']} {config['estimator']['name']}, {count} run{'s' * (count != 1)}"
        time_left = chunk.seconds / chunk.step * (chunk.steps - chunk.step) if chunk.step else None
        lines.append(_bar(name, chunk.step, chunk.steps, "steps", time_left))
    return lines


def _bar(name: str, done: int, wanted: int, unit: str, seconds: float | None) -> RenderableType:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
    grid.add_column(ratio=1)
    for _ in range(2):
        grid.add_column(no_wrap=True, justify="right")
    left = "" if seconds is None else f"{_clock(seconds)} left"
    grid.add_row(name, ProgressBar(wanted, done), f"{done:,}/{wanted:,} {unit}", left)
    return grid


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _drawn(panel: Panel, metric: str, console: Console, rows: int) -> list[RenderableType]:
    """A task's curves, and what each of them is."""
    of = card(metric, panel.task)
    ascii_only = console.options.ascii_only
    curves = [line.curve for line in panel.lines]
    scale = ", on a logarithmic scale" if is_logarithmic(curves, of.direction) else ""
    subject = f"{panel.task} {panel.objective}".strip()
    title = Text(shown(f"{subject}: {of.label}, mean over seeds{scale}"), style="bold", no_wrap=True)
    drawing = plot(
        curves, console.width - 1, rows, x_end=panel.end, x_label=panel.unit, good_end=of.direction,
        ascii_only=ascii_only,
    )  # fmt: skip
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    table.add_column("setting", overflow="fold")
    diverged = any(line.diverged for line in panel.lines)
    numbers = ["runs", "now", *(["best"] if of.direction else []), *(["diverged"] if diverged else [])]
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for number, line in enumerate(panel.lines):
        texts = {
            "runs": str(line.runs), "now": f"{line.now:.4g}", "best": f"{line.best:.4g}",
            "diverged": str(line.diverged),
        }  # fmt: skip
        values = [texts[name] for name in numbers]
        state = "training" if line.training else "recorded"
        table.add_row(Text(letter(number), style=f"bold {color(number)}"), line.name, *values, state)
    hidden = panel.others
    more = [Text(f"and {hidden} more setting{'s' * (hidden != 1)} (--top)", style="dim")] if hidden else []
    return [title, *drawing, table, *more]
