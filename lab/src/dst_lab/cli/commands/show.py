"""`dst show`: what is recorded, as a table, as JSON or as CSV."""

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.measure import Measurement
from rich.table import Table

from dst_lab.cards import metric as card
from dst_lab.cli.options.parser import add_store, add_where, at_least
from dst_lab.cli.terminal.console import Console, say
from dst_lab.estimators import names_of_temperatures
from dst_lab.records import field, summarise
from dst_lab.records.conditions import parse
from dst_lab.records.export import harmless
from dst_lab.records.fields import CONFIG, STATISTICS, WORDS, column, names, order, value_at
from dst_lab.runs import WHOLE
from dst_lab.shown import shown
from dst_lab.store import Run, Store, StoreError
from dst_lab.store.errors import RESTORE

WIDE = 160
LEAST = 20
"""Columns of the screen below which a setting beside its numbers cannot be read."""
SETTING = ("task", "estimator", *(f"estimator.{name}" for name in names_of_temperatures()), "lr")
"""What tells settings apart, with all other fields in which runs of a task differ: such runs are not averaged
together."""
ENDS = ("diverged", "failed", "stopped", "worse")


def add(commands: Any) -> None:
    """Add the command."""
    show = commands.add_parser(
        "show", help="a table of what is recorded",
        description="Mean, standard deviation and best of a metric over the runs of each setting, the best first; "
        "settings of which a run diverged come last.",
    )  # fmt: skip
    add_where(show, "only runs that fit all conditions, such as task=logic-gates 'tau_f<=0.3' 'seed>=1000' seeds=fresh")
    show.add_argument(
        "--group", default=",".join(SETTING),
        help="fields to group by, with commas; seeds tells search seeds (below 1000) from fresh ones, id runs one by "
        "one (the setting)",
    )  # fmt: skip
    show.add_argument("--metric", default="validation_loss", help="what to summarise (validation_loss)")
    show.add_argument(
        "--at",
        choices=("last", "best"),
        help="which of a run's values (the metric's own: best of a validation loss, last of a test loss)",
    )
    show.add_argument("--sort", metavar="COLUMN", help="rows by this column, upwards (by task, then the best first)")
    show.add_argument("--reverse", action="store_true", help="rows in the opposite order")
    show.add_argument("--top", type=at_least(int, 1), metavar="N", help="the first N rows of each task")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="rows as JSON, numbers in full")
    form.add_argument("--csv", action="store_true", help="rows as CSV, numbers in full")
    add_store(show)
    show.set_defaults(do=_show)


def _show(args: argparse.Namespace) -> int:
    parse(args.where)  # before anything is opened
    at = args.at or card(args.metric).at
    with Store.open(args.store) as store:
        damaged = store.leave_out_damaged()
        rows, group, lacking = gather(store, args.where, args.group.split(","), args.metric, at)
        torn = _torn(store)
    rows = arranged(rows, args.metric, args.sort, reverse=args.reverse, top=args.top)
    if args.json:
        say(json.dumps([_plain(row) for row in rows], indent=1))
    elif args.csv:
        _write_csv(rows, group)
    else:
        draw(rows, group, args.metric, at, args.where)
    if lacking:
        what = "1 row, whose runs have" if lacking == 1 else f"{lacking} rows, whose runs have"
        say(f"dst: left out: {what} no single number {args.metric!r}", sys.stderr)
    for name, reason in damaged.items():
        say(f"dst: damaged, and left out: {name}: {reason}", sys.stderr)
    if damaged and not torn:
        say(f"dst: {RESTORE}", sys.stderr)
    if torn:
        say(f"dst: runs may be missing: {torn}", sys.stderr)
    return 1 if damaged or torn else 0


def _torn(store: Store) -> str:
    """Why runs may be missing from what can be read; empty where the file holds together."""
    try:
        store.check_pages()
    except StoreError as error:
        return str(error)
    return ""


def print_table(store: Store, where: Sequence[str], metric: str, at: str, only: Collection[str] | None = None) -> None:
    """Each setting's mean and spread; of the runs with these ids alone, where `only` says so."""
    rows, group, _ = gather(store, where, SETTING, metric, at, only)
    draw(arranged(rows, metric), group, metric, at, where)


def gather(
    store: Store, where: Sequence[str], group: Sequence[str], metric: str, at: str, only: Collection[str] | None = None
) -> tuple[list[dict[str, Any]], list[str], int]:
    """A row per group, the fields that groups go by (the setting is completed by what else tells runs apart), and how
    many groups have no run with the metric, and are left out."""
    if tuple(group) == SETTING:
        runs = [run for run in store.runs() if only is None or run.id in only]
        group = [name for name in group if any(field(run, name) is not None for run in runs)] + _varied(runs)
        # Search seeds choose a setting and fresh ones confirm it: the two are not averaged together.
        if len({field(run, "seeds") for run in runs}) > 1:
            group = [*group, "seeds"]
    rows = summarise(store, metric=metric, where=where, group=group, at=at, only=only)
    told = [row for row in rows if row["n"] or any(row[name] for name in ENDS)]
    return told, [column(name) for name in group], len(rows) - len(told)


def arranged(
    rows: list[dict[str, Any]], metric: str, sort: str | None = None, *, reverse: bool = False, top: int | None = None
) -> list[dict[str, Any]]:
    """Rows in their order: by a column, or inside a task the best first and those with diverged runs last; of each task
    at most `top`."""
    if sort is not None and rows:
        named = {_heading(name): name for name in rows[0]}
        if named.get(sort, sort) not in rows[0]:
            raise ValueError(f"--sort takes a column, got {sort!r}: choose among {', '.join(named)}")
        by = named.get(sort, sort)
        rows = sorted(rows, key=lambda row: order(row[by]))
    elif rows:
        sign = -card(metric).direction or 1
        rows = sorted(rows, key=lambda row: (str(row.get("task")), *_rank(row, sign)))
    if reverse:
        rows = rows[::-1]
    if top is None:
        return rows
    shown_of: dict[str, int] = {}
    kept = []
    for row in rows:
        task = str(row.get("task"))
        shown_of[task] = shown_of.get(task, 0) + 1
        if shown_of[task] <= top:
            kept.append(row)
    return kept


def _rank(row: Mapping[str, Any], sign: int) -> tuple[int, float]:
    """The best first; then groups of which a run diverged, as searches rank them; at the end NaN, and groups of which
    no run is done."""
    mean = row["mean"]
    return (2, 0.0) if mean is None or math.isnan(mean) else (int(row["diverged"] > 0), sign * mean)


def draw(
    rows: Sequence[Mapping[str, Any]], group: Sequence[str], metric: str, at: str, where: Sequence[str] = ()
) -> None:
    """The rows as one table or, where that is wider than the screen, as one table per task."""
    console = Console(width=None if Console().is_terminal else WIDE)
    title = f"{metric} ({at} of each run)"
    if not rows:
        condition = f" where {' and '.join(where)}" if where else ""
        console.print(f"no runs with {metric}{condition}", soft_wrap=True)
    elif _width(console, _table(rows, _used(rows, group), title)) <= console.width:
        console.print(_table(rows, _used(rows, group), title))
    else:
        for task in dict.fromkeys(row.get("task") for row in rows):
            _draw_narrow(console, [row for row in rows if row.get("task") == task], group, title)


def _draw_narrow(console: Console, rows: Sequence[Mapping[str, Any]], group: Sequence[str], title: str) -> None:
    """No identifying column is cut: first the columns that are the same in all rows become a line above the table;
    where that is not enough, all others become one column, and where that gets too narrow, each row a few lines."""
    columns = _used(rows, group)
    same = []
    for name in [name for name in columns if len({repr(row[name]) for row in rows}) == 1]:
        if _width(console, _table(rows, columns, title)) <= console.width:
            break
        columns.remove(name)
        same.append(_pair(rows[0], name))
    if _width(console, _table(rows, columns, title)) > console.width:
        rows = [
            {**row, "setting": " ".join(_pair(row, name) for name in columns if row[name] is not None)} for row in rows
        ]
        columns = ["setting"]
    if same:
        console.print(f"in all rows: {', '.join(same)}", soft_wrap=True)
    if columns == ["setting"] and _width(console, _table(rows, [], title)) + LEAST > console.width:
        _draw_lines(console, rows, title)
    else:
        console.print(_table(rows, columns, title))


def _draw_lines(console: Console, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    console.print(title, style="italic")
    for row in rows:
        if row["setting"]:
            console.print(row["setting"])
        known = [name for name in _numbers(rows) if row[name] is not None]
        console.print("  " + ", ".join(f"{name} {_number(row[name])}" for name in known))


def _used(rows: Sequence[Mapping[str, Any]], group: Sequence[str]) -> list[str]:
    return [name for name in group if any(row[name] is not None for row in rows)]


def _pair(row: Mapping[str, Any], name: str) -> str:
    return f"{_heading(name)}={_field(row, name)}"


def _heading(name: str) -> str:
    """A column's name; what an estimator takes goes by its own, unless that is another column's."""
    own = name.removeprefix("estimator.")
    return name if own in STATISTICS else own


def _width(console: Console, table: Table) -> int:
    """Columns of the screen that the table would take, were there enough."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    numbers = _numbers(rows)
    for name in columns:
        table.add_column(_heading(name), overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_field(row, name) for name in columns), *(_number(row[name]) for name in numbers))
    return table


def _numbers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return ["n", "mean", "std", "best", *(name for name in ENDS if any(row[name] for row in rows))]


def _write_csv(rows: Sequence[Mapping[str, Any]], group: Sequence[str]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(shown(harmless(_heading(name))) for name in (rows[0] if rows else group))
    for row in rows:
        writer.writerow(shown(harmless(value)) if isinstance(value, str) else value for value in row.values())
    say(text.getvalue().removesuffix("\n"))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: no NaN, no infinity."""
    return {
        _heading(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _varied(runs: Sequence[Run]) -> list[str]:
    """The config's other fields, also those of the estimator, in which runs of one task differ; the data set also
    where nothing was held out. A field that some runs lack tells them apart too, unless it is another estimator's."""
    seen: dict[tuple[str, str], set[str]] = {}
    known: dict[str, dict[str, None]] = {}
    taken: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        known.setdefault(run.task, {}).update(dict.fromkeys(names(run.fields)))
        taken.setdefault((run.task, run.estimator), set()).update(names(run.fields))
    for run in runs:
        own = names(run.fields)
        for name in known[run.task]:
            foreign = name.startswith("estimator.") and name not in taken[run.task, run.estimator]
            if not (foreign or name in (*SETTING, "estimator.name", "seed")):
                value = repr(value_at(run.fields, name)) if name in own else ""
                seen.setdefault((run.task, name), set()).add(value)
    told = [name for (_, name), values in seen.items() if len(values) > 1 or _whole(name, values)]
    return [CONFIG + name if name in (*WORDS, *STATISTICS) else name for name in dict.fromkeys(told)]


def _whole(name: str, values: set[str]) -> bool:
    """True where "validation" are test images, which a table must say."""
    return name == "dataset" and any(WHOLE in value for value in values)


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _field(row: Mapping[str, Any], name: str) -> str:
    """A field in words; the parameters 3 and 3.0 of an objective are two."""
    value = row[name]
    whole = isinstance(value, float) and value.is_integer() and name.startswith("parameters.")
    return str(value) if whole else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join([str(value["name"]), *(f"{k}={v}" for k, v in value.items() if k != "name")])
    return _number(value)
