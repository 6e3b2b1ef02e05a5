"""The metrics of a store as a table, one row per number, for other tools."""

import csv
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from dst_lab.records.fields import chosen, did_you_mean, names, value_at
from dst_lab.records.row import shown_by, temperatures
from dst_lab.replace import check_target, replacing
from dst_lab.store import Run, Store, StoreError
from dst_lab.store.errors import explained

COLUMNS = ("run", "task", "estimator", "tau_f", "tau_b", "seed", "step", "metric", "value", "schedule", "status")
"""The columns of every export; the other fields of the configs follow."""


def export(
    store: Store,
    out: str | os.PathLike[str],
    *,
    where: Sequence[str] = (),
    metrics: Collection[str] = (),
) -> int:
    """Write the metrics of runs to `out` as CSV, and return the number of rows.

    `where` are conditions that every run fits, as of `summarise`; `metrics` are names, of which a vector's takes all of
    its numbers. Without them, every metric of every run is written.

    The columns are `COLUMNS`, then every other field that the config of a run has, such as lr, in alphabetical order.
    A field that a run leaves out has its default, or is empty; a list is text. Where a temperature follows a schedule,
    tau_f and tau_b hold its first value and `schedule` is the schedule, so that such runs do not mix with constant
    ones (see `temperatures`). A vector becomes the metrics `name[0]`, `name[1]`, .. and values are float64, equal to
    what was recorded. A text that a spreadsheet would take for a formula (`=`, `+`, `-` or `@` at its beginning) has a
    `'` before it. The file appears when it is whole.
    """
    with explained(Path(out)):
        check_target(out)
    runs = chosen(store.runs(), where)
    others = set[str]()
    for run in runs:
        in_columns = {f"estimator.{name}" for name in shown_by(run.config["estimator"])}
        others |= {*names(run.config)} & {*names(run.fields)} - {"task", "seed", "estimator.name", *in_columns}
    header = [*COLUMNS, *(f"config.{name}" if name in COLUMNS else name for name in sorted(others))]
    count = 0
    with explained(Path(out)), replacing(out) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(harmless, header))
        for row in _rows(store, runs, sorted(others), metrics):
            writer.writerow(harmless(cell) if isinstance(cell, str) else cell for cell in row)
            count += 1
    return count


def _rows(store: Store, runs: list[Run], others: list[str], metrics: Collection[str]) -> Iterator[list[Any]]:
    lacking, known = set(metrics), set[str]()
    for run in runs:
        tau = temperatures(run.config["estimator"])
        before = [run.id, run.task, run.estimator, tau.tau_f, tau.tau_b, run.seed]
        after = [tau.schedule or None, run.status, *(value_at(run.fields, name) for name in others)]
        for name, series in store.history(run.id).items():
            for metric, values in series.components(name):
                if not metrics or not {name, metric}.isdisjoint(metrics):
                    for step, value in zip(series.steps.tolist(), values.astype(float).tolist(), strict=True):
                        yield [*before, step, metric, value, *after]
                lacking -= {name, metric}
            known.add(name)
    if lacking and known:
        name = min(lacking)
        raise StoreError(
            f"no run has the metric {name!r}; there are {', '.join(sorted(known))}." + did_you_mean(name, known)
        )


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
