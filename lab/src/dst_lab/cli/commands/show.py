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
from dst_lab.cards import shown
from dst_lab.cli.options import add_store, add_where, at_least
from dst_lab.cli.terminal import Console, say
from dst_lab.estimators import names_of_temperatures
from dst_lab.records import Reader, field, summarise, versions
from dst_lab.records.export import harmless
from dst_lab.records.fields import CONFIG, WORDS, by_size, chosen, names, value_at
from dst_lab.records.summary import ENDS, STATISTICS, cautious, column, spread_of_seeds
from dst_lab.runs import WHOLE
from dst_lab.store import Run, Store

WIDE = 160
SETTING = ("task", "estimator", *(f"estimator.{name}" for name in names_of_temperatures()), "lr")
"""What tells settings apart, with all other fields in which runs of a task differ: such runs are not averaged
together."""
CAUTIOUS = "ranked by `cautious`, the mean made worse by 4 standard errors: settings have different numbers of runs"


def add(commands: Any) -> None:
    """Add the command."""
    about = (
        "Mean, standard deviation and best of metrics over the runs of each setting, the best first, settings of which "
        "a run diverged last. Where some have more runs than others, they are ranked by the mean made worse "
        "by 4 standard errors, so that one lucky seed is not ahead of ten."
    )
    show = commands.add_parser("show", help="a table of what is recorded", description=about)
    add_where(show, "only runs that fit all conditions, such as task=logic-gates 'tau_f<=0.3' seeds=fresh id=02e81647")
    show.add_argument(
        "--group",
        default=",".join(SETTING),
        help="fields to group by, with commas; seeds tells search seeds (below 1000) from fresh ones, id runs one by "
        "one (the setting)",
    )
    show.add_argument(
        "--pivot",
        nargs=2,
        metavar="FIELD",
        help="a table per task of two fields, the first as rows, the second as columns; a cell has the mean, the "
        "standard deviation and the number of its runs",
    )
    show.add_argument(
        "--metric",
        nargs="+",
        default=["validation_loss"],
        dest="metrics",
        metavar="METRIC",
        help="what to summarise; rows are ranked by the first (validation_loss)",
    )
    show.add_argument(
        "--at",
        choices=("last", "best"),
        help="which of a run's values (the metric's own: best of a validation loss, last of a test loss)",
    )
    show.add_argument("--top", type=at_least(int, 1), metavar="N", help="the first N rows of each task")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="rows as JSON, numbers in full")
    form.add_argument("--csv", action="store_true", help="rows as CSV, numbers in full")
    add_store(show)
    show.set_defaults(do=_show)


def _show(args: argparse.Namespace) -> int:
    with Store.open(args.store) as store:
        store.check_whole()
        asked = ["task", *args.pivot] if args.pivot else args.group.split(",")
        table, group, lacking = gather(store, args.where, asked, args.metrics, args.at)
        pooled = versions(store, chosen(store.runs(), args.where))
    table = arranged(table, args.metrics, args.top)
    if args.json:
        say(json.dumps([_plain(line) for line in table], indent=1))
    elif args.csv:
        _write_csv(table, group)
    elif args.pivot:
        _draw_pivot(table, group[1], group[2], args.metrics[0], args.at)
    else:
        draw(table, group, args.metrics, args.at, args.where)
    for sentence in pooled:
        say(f"dst: {sentence}", sys.stderr)
    if lacking:
        what = "1 row, whose runs have" if lacking == 1 else f"{lacking} rows, whose runs have"
        say(f"dst: left out: {what} no single number {args.metrics[0]!r}", sys.stderr)
    return 0


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


def arranged(table: list[dict[str, Any]], metrics: Sequence[str], top: int | None = None) -> list[dict[str, Any]]:
    """Lines by task, the best first, with what they are ranked by in a last column; of each task at most `top`."""
    direction = card(metrics[0]).direction
    compared: dict[tuple[str, str], list[tuple[int, float | None]]] = {}
    for line in table:
        compared.setdefault(_among(line), []).append((line["n"], line["std"]))
    spreads = {among: spread_of_seeds(settings) for among, settings in compared.items()}
    for line in table:
        spread = spreads[_among(line)]
        line["cautious"] = cautious(line["mean"], line["n"], spread, direction) if spread and line["n"] else None
    counts: dict[str, int] = {}
    kept = []
    for line in sorted(table, key=lambda line: (_among(line)[0], *_rank(line, direction))):
        task = _among(line)[0]
        counts[task] = counts.get(task, 0) + 1
        if top is None or counts[task] <= top:
            kept.append(line)
    return kept


def _rank(line: Mapping[str, Any], direction: int) -> tuple[bool, bool, float]:
    """A key to sort by: the best first, then lines with a diverged run, then lines without a number."""
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
    """Draw the lines as one table or, where that is wider than the screen, as one table per task, above which stands
    what its lines share."""
    console = Console(width=None if Console().is_terminal else WIDE)
    title = ", ".join(f"{metric} ({at or card(metric).at} of each run)" for metric in metrics)
    columns = [name for name in group if any(line[name] is not None for line in table)]
    endless = console.options.update(max_width=10_000)
    if not table:
        condition = f" where {' and '.join(where)}" if where else ""
        console.print(f"no runs with {' and '.join(metrics)}{condition}", soft_wrap=True)
    elif Measurement.get(console, endless, whole := _table(table, columns, title)).maximum <= console.width:
        console.print(whole)
    else:
        for task in dict.fromkeys(line.get("task") for line in table):
            lines = [line for line in table if line.get("task") == task]
            same = [name for name in columns if len({repr(line[name]) for line in lines}) == 1]
            held = ", ".join(
                f"{_heading(name)}={_field(lines[0], name)}" for name in same if lines[0][name] is not None
            )
            console.print(f"in all rows: {held}", soft_wrap=True)
            console.print(_table(lines, [name for name in columns if name not in same], title))
    if any(line["cautious"] is not None for line in table):
        console.print(CAUTIOUS, soft_wrap=True)


def _draw_pivot(table: Sequence[Mapping[str, Any]], down: str, across: str, metric: str, at: str | None) -> None:
    """A table per task of the values of two fields, in order; numbers come before words."""
    console = Console(width=None if Console().is_terminal else WIDE)
    title = f"{metric} ({at or card(metric).at} of each run): mean ± standard deviation (n)"
    for task in dict.fromkeys(line["task"] for line in table):
        cells = {(_field(line, down), _field(line, across)): line for line in table if line["task"] == task}
        rows, columns = (
            list(dict.fromkeys(pair[i] for pair in sorted(cells, key=lambda p: by_size(p[i])))) for i in (0, 1)
        )
        drawn = Table(title=f"{task}: {title}", title_justify="left")
        drawn.add_column(f"{_heading(down)} \\ {_heading(across)}")
        for value in columns:
            drawn.add_column(value, justify="right", no_wrap=True)
        for row in rows:
            drawn.add_row(row, *(_cell(cells.get((row, value))) for value in columns))
        console.print(drawn)
    if not table:
        console.print(f"no runs with {metric}")


def _cell(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return ""
    spread = f" ± {line['std']:.2g}" if line["std"] is not None else ""
    mean = f"{_number(line['mean'])}{spread} ({line['n']})" if line["n"] else ""
    lost = ", ".join(f"{line[name]} {name}" for name in ENDS if line[name])
    return f"{mean}{', ' if mean and lost else ''}{lost}"


def _heading(name: str) -> str:
    """A column's name, without `estimator.` before it unless another column has that name."""
    own = name.removeprefix("estimator.")
    return name if own in STATISTICS else own


def _table(table: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> Table:
    drawn = Table(title=title, title_justify="left")
    others = [name for name in table[0] if name.endswith((".mean", ".std"))]  # of further metrics
    counted = [name for name in ("cautious", *ENDS) if any(line[name] for line in table)]
    numbers = ["n", "mean", "std", "best", *others, *counted]
    for name in columns:
        drawn.add_column(_heading(name), overflow="fold")
    for name in numbers:
        drawn.add_column(name, justify="right", no_wrap=True)
    for line in table:
        drawn.add_row(*(_field(line, name) for name in columns), *(_number(line[name]) for name in numbers))
    return drawn


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
