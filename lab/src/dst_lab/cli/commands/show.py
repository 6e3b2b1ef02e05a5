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
from dst_lab.records import Reader, field, summarise, versions
from dst_lab.records.conditions import fits, parse
from dst_lab.records.export import harmless
from dst_lab.records.fields import CONFIG, WORDS, names, order, value_at
from dst_lab.records.summary import ENDS, STATISTICS, cautious, column, spread_of_seeds
from dst_lab.runs import WHOLE
from dst_lab.shown import did_you_mean, shown
from dst_lab.store import Run, Store, StoreError
from dst_lab.store.errors import RESTORE

WIDE = 160
SETTING = ("task", "estimator", *(f"estimator.{name}" for name in names_of_temperatures()), "lr")
"""What tells settings apart, with all other fields in which runs of a task differ: such runs are not averaged
together."""
CAUTIOUS = "ranked by `cautious`, the mean and 4 standard errors against it: settings have different numbers of runs"


def add(commands: Any) -> None:
    """Add the command."""
    show = commands.add_parser(
        "show", help="a table of what is recorded",
        description="Mean, standard deviation and best of metrics over the runs of each setting, the best first, "
        "settings of which a run diverged last. Where some have more runs than others, 4 standard errors count against "
        "each mean, so that one lucky seed does not stand before ten.",
    )  # fmt: skip
    add_where(show, "only runs that fit all conditions, such as task=logic-gates 'tau_f<=0.3' seeds=fresh id=02e81647")
    show.add_argument(
        "--group", default=",".join(SETTING),
        help="fields to group by, with commas; seeds tells search seeds (below 1000) from fresh ones, id runs one by "
        "one (the setting)",
    )  # fmt: skip
    show.add_argument(
        "--metric", nargs="+", default=["validation_loss"], dest="metrics", metavar="METRIC",
        help="what to summarise; rows are ranked by the first (validation_loss)",
    )  # fmt: skip
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
    conditions = parse(args.where)  # before anything is opened
    with Store.open(args.store) as store:
        damaged = store.leave_out_damaged()
        table, group, lacking = gather(store, args.where, args.group.split(","), args.metrics, args.at)
        pooled = versions(store, [run for run in store.runs() if fits(run, conditions)])
        try:
            store.check_pages()
            missing = ""
        except StoreError as error:
            missing = str(error)
    table = arranged(table, args.metrics, args.sort, reverse=args.reverse, top=args.top)
    if args.json:
        say(json.dumps([_plain(line) for line in table], indent=1))
    elif args.csv:
        _write_csv(table, group)
    else:
        draw(table, group, args.metrics, args.at, args.where)
    for sentence in pooled:
        say(f"dst: {sentence}", sys.stderr)
    if lacking:
        what = "1 row, whose runs have" if lacking == 1 else f"{lacking} rows, whose runs have"
        say(f"dst: left out: {what} no single number {args.metrics[0]!r}", sys.stderr)
    for name, reason in damaged.items():
        say(f"dst: damaged, and left out: {name}: {reason}", sys.stderr)
    if missing:
        say(f"dst: runs may be missing: {missing}", sys.stderr)
    elif damaged:
        say(f"dst: {RESTORE}", sys.stderr)
    return 1 if damaged or missing else 0


def print_table(store: Store, where: Sequence[str], metric: str, at: str, only: Collection[str] | None = None) -> None:
    """Print each setting's mean and spread; of the runs with these ids alone, where `only` is given."""
    table, group, _ = gather(store, where, SETTING, [metric], at, only)
    draw(arranged(table, [metric]), group, [metric], at, where)


def gather(
    store: Store,
    where: Sequence[str],
    group: Sequence[str],
    metrics: Sequence[str],
    at: str | None,
    only: Collection[str] | None = None,
) -> tuple[list[dict[str, Any]], list[str], int]:
    """A line per group, the fields that groups go by (the setting is completed by what else tells runs apart), and how
    many groups have no run with the first metric, and are left out."""
    rows = [row for row in Reader(store).rows.values() if only is None or row.run.id in only]
    if tuple(group) == SETTING:
        runs = [row.run for row in rows]
        group = [name for name in group if any(field(run, name) is not None for run in runs)] + _varied(runs)
        # Search seeds choose a setting and fresh ones confirm it: the two are not averaged together.
        if len({field(run, "seeds") for run in runs}) > 1:
            group = [*group, "seeds"]
    table = summarise(rows, metrics, where=where, group=group, at=at)
    kept = [line for line in table if line["n"] or any(line[name] for name in ENDS)]
    return kept, [column(name) for name in group], len(table) - len(kept)


def arranged(
    table: list[dict[str, Any]],
    metrics: Sequence[str],
    sort: str | None = None,
    *,
    reverse: bool = False,
    top: int | None = None,
) -> list[dict[str, Any]]:
    """Lines in their order, by a column or, inside a task, the best first, with what they are ranked by in a last
    column; of each task at most `top`."""
    direction = card(metrics[0]).direction
    compared: dict[tuple[str, str], list[tuple[int, float | None]]] = {}
    for line in table:
        compared.setdefault(_among(line), []).append((line["n"], line["std"]))
    spreads = {among: spread_of_seeds(settings) for among, settings in compared.items()}
    table = [{**line, "cautious": _cautious(line, spreads[_among(line)], direction)} for line in table]
    if sort is not None and table:
        headings = {_heading(name): name for name in table[0]}
        by = headings.get(sort, sort)
        if by not in table[0]:
            question = did_you_mean(sort, headings)
            raise ValueError(f"--sort takes a column, got {sort!r}: choose among {', '.join(headings)}.{question}")
        table = sorted(table, key=lambda line: order(line[by]))
    else:
        table = sorted(table, key=lambda line: (_among(line)[0], *_rank(line, direction)))
    if reverse:
        table = table[::-1]
    counts: dict[str, int] = {}
    kept = []
    for line in table:
        task = _among(line)[0]
        counts[task] = counts.get(task, 0) + 1
        if top is None or counts[task] <= top:
            kept.append(line)
    return kept


def _cautious(line: Mapping[str, Any], spread: float, direction: int) -> float | None:
    """What the line is ranked by, where that is not its mean."""
    return cautious(line["mean"], line["n"], spread, direction) if spread and line["n"] else None


def _rank(line: Mapping[str, Any], direction: int) -> tuple[bool, bool, float]:
    """The best first; then lines of which a run diverged, as searches rank them; then those without a number."""
    value = line["mean"] if line["cautious"] is None else line["cautious"]
    is_number = value is not None and not math.isnan(value)
    return not is_number, line["diverged"] > 0, (-direction or 1) * value if is_number else 0.0


def _among(line: Mapping[str, Any]) -> tuple[str, str]:
    """The lines that one is compared with: of its task, and of its kind of seeds."""
    return str(line.get("task")), str(line.get("seeds"))


def draw(
    table: Sequence[Mapping[str, Any]],
    group: Sequence[str],
    metrics: Sequence[str],
    at: str | None,
    where: Sequence[str] = (),
) -> None:
    """Draw the lines as one table or, where that is wider than the screen, as one table per task: what its lines share
    stands above it and, where that is not enough, each line becomes a few."""
    console = Console(width=None if Console().is_terminal else WIDE)
    title = ", ".join(f"{metric} ({at or card(metric).at} of each run)" for metric in metrics)
    columns = [name for name in group if any(line[name] is not None for line in table)]
    if not table:
        condition = f" where {' and '.join(where)}" if where else ""
        console.print(f"no runs with {' and '.join(metrics)}{condition}", soft_wrap=True)
    elif _width(console, _table(table, columns, title)) <= console.width:
        console.print(_table(table, columns, title))
    else:
        for task in dict.fromkeys(line.get("task") for line in table):
            _draw_narrow(console, [line for line in table if line.get("task") == task], columns, title)
    if any(line["cautious"] is not None for line in table):
        console.print(CAUTIOUS, soft_wrap=True)


def _draw_narrow(console: Console, table: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> None:
    columns = [name for name in columns if any(line[name] is not None for line in table)]
    same = []
    for name in [name for name in columns if len({repr(line[name]) for line in table}) == 1]:
        if _width(console, _table(table, columns, title)) <= console.width:
            break
        columns.remove(name)
        same.append(_pair(table[0], name))
    if same:
        console.print(f"in all rows: {', '.join(same)}", soft_wrap=True)
    if _width(console, _table(table, columns, title)) <= console.width:
        console.print(_table(table, columns, title))
        return
    console.print(title, style="italic")
    for line in table:
        if named := " ".join(_pair(line, name) for name in columns if line[name] is not None):
            console.print(named)
        known = [name for name in _numbers(table) if line[name] is not None]
        console.print("  " + ", ".join(f"{name} {_number(line[name])}" for name in known))


def _pair(line: Mapping[str, Any], name: str) -> str:
    return f"{_heading(name)}={_field(line, name)}"


def _heading(name: str) -> str:
    """A column's name; what an estimator takes goes by its own, unless that is another column's."""
    own = name.removeprefix("estimator.")
    return name if own in STATISTICS else own


def _width(console: Console, table: Table) -> int:
    """Columns of the screen that the table would take, were there enough."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _table(table: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> Table:
    drawn = Table(title=title, title_justify="left")
    numbers = _numbers(table)
    for name in columns:
        drawn.add_column(_heading(name), overflow="fold")
    for name in numbers:
        drawn.add_column(name, justify="right", no_wrap=True)
    for line in table:
        drawn.add_row(*(_field(line, name) for name in columns), *(_number(line[name]) for name in numbers))
    return drawn


def _numbers(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of numbers that are drawn: of further metrics mean and deviation, and what there is any of."""
    others = [name for name in table[0] if name.endswith((".mean", ".std"))]
    counted = [name for name in ("cautious", *ENDS) if any(line[name] for line in table)]
    return ["n", "mean", "std", "best", *others, *counted]


def _write_csv(table: Sequence[Mapping[str, Any]], group: Sequence[str]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(shown(harmless(_heading(name))) for name in (table[0] if table else group))
    for line in table:
        writer.writerow(shown(harmless(value)) if isinstance(value, str) else value for value in line.values())
    say(text.getvalue().removesuffix("\n"))


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as JSON can hold it: no NaN, no infinity."""
    return {
        _heading(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }


def _varied(runs: Sequence[Run]) -> list[str]:
    """The config's other fields, also those of the estimator, in which runs of one task differ; the data set also
    where nothing was held out, so that "validation" are test images. A field that some runs lack tells them apart too,
    unless it is another estimator's."""
    of_task: dict[str, dict[str, None]] = {}
    of_estimator: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        of_task.setdefault(run.task, {}).update(dict.fromkeys(names(run.fields)))
        of_estimator.setdefault((run.task, run.estimator), set()).update(names(run.fields))
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        own = names(run.fields)
        for name in of_task[run.task]:
            is_foreign = name.startswith("estimator.") and name not in of_estimator[run.task, run.estimator]
            if not (is_foreign or name in (*SETTING, "estimator.name", "seed")):
                value = repr(value_at(run.fields, name)) if name in own else ""
                values.setdefault((run.task, name), set()).add(value)
    varied = [
        name
        for (_, name), seen in values.items()
        if len(seen) > 1 or (name == "dataset" and any(WHOLE in value for value in seen))
    ]
    return [CONFIG + name if name in (*WORDS, *STATISTICS) else name for name in dict.fromkeys(varied)]


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _field(line: Mapping[str, Any], name: str) -> str:
    """A field in words; the parameters 3 and 3.0 of an objective are two."""
    value = line[name]
    is_whole = isinstance(value, float) and value.is_integer() and name.startswith("parameters.")
    return str(value) if is_whole else _number(value)
