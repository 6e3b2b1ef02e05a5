"""The metrics of a store as long rows, one per number, for other tools."""

import csv
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dst_lab.records.conditions import check_conditions, fits, parse
from dst_lab.records.fields import names, value_at
from dst_lab.records.temperatures import shown_by, temperatures
from dst_lab.replace import CSV, PARQUET, check_target, replacing
from dst_lab.shown import did_you_mean
from dst_lab.store import Run, Store, StoreError
from dst_lab.store.errors import explained

COLUMNS = ("run", "task", "estimator", "tau_f", "tau_b", "seed", "step", "metric", "value", "schedule", "status")
"""The columns of every export; the other fields of the configs follow."""

_KINDS: dict[str, type] = {"tau_f": float, "tau_b": float, "value": float, "seed": int, "step": int}

# Rows that are gathered before they are written: parquet is read and compressed by such groups.
_GROUP = 200_000


class _Block(NamedTuple):
    """The rows of one metric of one run: what they share, by column, then their steps and values."""

    shared: dict[str, Any]
    metric: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def export(
    store: Store,
    format: str,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    where: Sequence[str] = (),
    metrics: Collection[str] = (),
) -> int:
    """Write the metrics of runs to `out`, as "csv" or "parquet", and return the number of rows.

    `where` are conditions that every run fits, as of `summarise`; `metrics` are names, of which a vector's takes all of
    its numbers. Without them, every metric of every run is written.

    The columns are `COLUMNS`, then every other field that the config of a run has, such as lr, in alphabetical order.
    A field that a run leaves out has its default, or is empty; a list is text. Where a temperature follows a schedule,
    tau_f and tau_b hold its first value and `schedule` is the schedule, so that such runs do not mix with constant
    ones (see `temperatures`). A vector becomes the metrics `name[0]`, `name[1]`, .. and values are float64, equal to
    what was recorded. In a csv file, a text that a spreadsheet would take for a formula (`=`, `+`, `-` or `@` at its
    beginning) has a `'` before it. The file appears when it is whole. An earlier export is replaced; any other file
    only with `overwrite`, a store never.
    """
    writers: dict[str, Callable[[Path, dict[str, type], Iterator[_Block]], int]]
    writers = {"csv": _write_csv, "parquet": _write_parquet}
    if format not in writers:
        raise StoreError(f"the format {format!r} is not known: give one of {', '.join(writers)}.")
    with explained(Path(out)):
        check_target(out, {"csv": CSV, "parquet": PARQUET}[format], overwrite=overwrite)
    runs, conditions = store.runs(), parse(where)
    check_conditions(conditions, runs)
    runs = [run for run in runs if fits(run, conditions)]
    others = sorted({name for run in runs for name in _other_fields(run)})
    kinds: dict[str, type] = {name: _KINDS.get(name, str) for name in COLUMNS}
    kinds |= {_column(name): _kind([value_at(run.fields, name) for run in runs]) for name in others}
    with explained(Path(out)), replacing(out) as draft:
        return writers[format](draft, kinds, _blocks(store, runs, others, metrics))


def _other_fields(run: Run) -> set[str]:
    """The fields of a run that none of COLUMNS shows."""
    in_columns = {f"estimator.{name}" for name in shown_by(run.config["estimator"])}
    return {*names(run.config)} & {*names(run.fields)} - {"task", "seed", "estimator.name", *in_columns}


def _column(name: str) -> str:
    return f"config.{name}" if name in COLUMNS else name


def _kind(values: list[Any]) -> type:
    """What a column holds: whole numbers, numbers or text; text also where one is too large for a column of numbers."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds <= {int, float} or any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        return str
    return int if kinds == {int} else float


def _blocks(store: Store, runs: list[Run], others: list[str], metrics: Collection[str]) -> Iterator[_Block]:
    lacking, known = set(metrics), set[str]()
    for run in runs:
        tau = temperatures(run.config["estimator"])
        shared = {
            "run": run.id, "task": run.task, "estimator": run.estimator, "tau_f": tau.tau_f, "tau_b": tau.tau_b,
            "seed": run.seed, "schedule": tau.schedule or None, "status": run.status,
        }  # fmt: skip
        shared |= {_column(name): value_at(run.fields, name) for name in others}
        for name, series in store.history(run.id).items():
            for metric, values in series.components(name):
                if not metrics or not {name, metric}.isdisjoint(metrics):
                    yield _Block(shared, metric, series.steps, values.astype(np.float64))
                lacking -= {name, metric}
            known.add(name)
    if lacking and known:
        name = min(lacking)
        raise StoreError(
            f"no run has the metric {name!r}; there are {', '.join(sorted(known))}." + did_you_mean(name, known)
        )


def _write_csv(path: Path, kinds: dict[str, type], blocks: Iterator[_Block]) -> int:
    count = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(harmless, kinds))
        own = list(kinds).index("step")
        before, after = list(kinds)[:own], list(kinds)[own + 3 :]  # step, metric and value lie between
        for block in blocks:
            first, last = ([_cell(block.shared, name, kinds, harmless) for name in part] for part in (before, after))
            metric = harmless(block.metric)
            pairs = zip(block.steps.tolist(), block.values.tolist(), strict=True)
            writer.writerows([*first, step, metric, value, *last] for step, value in pairs)
            count += block.steps.size
    return count


def _write_parquet(path: Path, kinds: dict[str, type], blocks: Iterator[_Block]) -> int:
    import pyarrow as pa  # late: it takes a third of a second to load
    import pyarrow.parquet as pq

    types = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()], {"written by": PARQUET.mark.decode()})

    def table(group: list[_Block]) -> Any:
        row_of = pa.array(np.repeat(np.arange(len(group)), [block.steps.size for block in group]))
        columns = {
            name: pa.array([_cell(block.shared, name, kinds) for block in group], types[kinds[name]]).take(row_of)
            for name in group[0].shared
        }
        columns["metric"] = pa.array([block.metric for block in group]).take(row_of)
        columns["step"] = pa.array(np.concatenate([block.steps for block in group]))
        columns["value"] = pa.array(np.concatenate([block.values for block in group]))
        return pa.table([columns[name] for name in kinds], schema=schema)

    count, written, group = 0, 0, list[_Block]()
    with pq.ParquetWriter(path, schema) as writer:
        for block in blocks:
            group.append(block)
            count += block.steps.size
            if count - written >= _GROUP:
                writer.write_table(table(group))
                written, group = count, []
        if group:
            writer.write_table(table(group))
    return count


def _cell(shared: dict[str, Any], name: str, kinds: dict[str, type], text: Callable[[str], str] = str) -> Any:
    """The value in the column's type: a column of text may hold numbers of other runs. `text` is applied to texts."""
    value = shared[name]
    if value is None:
        return None
    return text(value) if isinstance(value, str) else kinds[name](value)


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
