"""The one place that filters and averages runs: for `dst show`, for the page and for claims."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dst_lab.cards import metric as card
from dst_lab.records.fields import CONFIG, check_fields, chosen, did_you_mean, field, has_field, order
from dst_lab.records.row import Array, Row, spread
from dst_lab.store import Run, Store, StoreError

ENDS = ("diverged", "failed", "stopped", "worse")
"""How runs ended that are counted and not averaged; and "worse": than untrained."""
STATISTICS = ("n", "mean", "std", "min", "max", "best", *ENDS, "cautious")
"""The columns of a table after those of its groups; its lines are ranked by the last."""


@dataclass(frozen=True)
class Summary:
    """A metric over the `n` runs that are done and have it: mean, standard deviation (n - 1; None for one run) and
    extremes. `best` is the good extreme, None where the metric's card does not say which that is."""

    n: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    best: float | None = None


def values(rows: Iterable[Row], metric: str, at: str | None = None) -> Array:
    """A metric of each run that is done and has it: its value at the end of training (`at="last"`), its best one over
    training (`at="best"`), or the one that counts by the metric's card (None)."""
    return np.array([row.counted(metric, at) for row in rows if row.done and row.is_number(metric)])


def summary(rows: Iterable[Row], metric: str, at: str | None = None) -> Summary:
    """A metric over runs, each with the one of its `values`."""
    found = values(rows, metric, at)
    if not found.size:
        return Summary(0)
    low, high = float(found.min()), float(found.max())
    std = float(spread(found)) if found.size > 1 else None
    best = {-1: low, 0: None, 1: high}[card(metric).direction]
    return Summary(found.size, float(found.mean()), std, low, high, best)


def ends(runs: Iterable[Run]) -> dict[str, int]:
    """How many of the runs ended otherwise than by being trained whole, and how many ended worse than untrained."""
    runs = list(runs)
    counts = {status: sum(run.status == status for run in runs) for status in ENDS[:-1]}
    return counts | {"worse": sum("worse_than_untrained" in run.detail for run in runs)}


def summarise(
    rows: Iterable[Row],
    metrics: Sequence[str] = ("validation_loss",),
    *,
    where: Sequence[str] = (),
    group: Sequence[str] = ("task", "estimator"),
    at: str | None = None,
) -> list[dict[str, Any]]:
    """One dictionary per group of runs: its fields, then the `STATISTICS` of the first metric; those of another metric
    are `METRIC.n`, `METRIC.mean` and so on. A field with the name of a statistic is `config.n` there.

    `where` are conditions such as "tau_f<=0.3" or "estimator=decoupled"; a run must fit all of them. They and `group`
    name fields of the config, dotted where nested ("lr", "estimator.tau_f"; "tau_f" will do inside "estimator",
    which alone is its name), "status", "id", or "seeds" (see `field`). A field that is given as None is the text
    "None" in a group, and a field that its runs do not have is None.
    """
    if at not in (None, "last", "best"):
        raise StoreError(f"a run counts with its 'last' or its 'best' value: got at={at!r}")
    rows = list(rows)
    runs = [row.run for row in rows]
    check_fields(group, runs)
    fitting = {run.id for run in chosen(runs, where)}
    columns = [column(name) for name in group]
    groups: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for row in rows:
        if row.run.id in fitting:
            groups.setdefault(tuple(_key(row.run, name) for name in columns), []).append(row)
    table = []
    for key, members in sorted(groups.items(), key=lambda item: [order(value) for _, value in item[0]]):
        first, *others = [asdict(summary(members, metric, at)) for metric in metrics]
        line = {name: value for name, (_, value) in zip(columns, key, strict=True)}
        line |= first | ends(row.run for row in members)
        for metric, one in zip(metrics[1:], others, strict=True):
            line |= {f"{metric}.{name}": value for name, value in one.items()}
        table.append(line)
    for place, metric in enumerate(metrics):
        if not any(line[f"{metric}.n" if place else "n"] for line in table):
            _check_metric(metric, [row for members in groups.values() for row in members])
        if table and at == "best" and card(metric).direction == 0:
            raise StoreError(
                f"whether a high or a low {metric!r} is best is not known. Ask for each run's last value (--at last), "
                "or register a card that says so (dst_lab.cards)."
            )
    return table


def spread_of_seeds(settings: Iterable[tuple[int, float | None]]) -> float:
    """The standard deviation over the seeds of a typical setting, from (runs, deviation) of each setting: the median,
    which a setting that broke on some seed does not move. 0 where all settings have equally many runs."""
    known = [(n, std) for n, std in settings if n]
    if len({n for n, _ in known}) < 2:
        return 0.0
    return float(np.median([std for _, std in known if std is not None and math.isfinite(std)] or [0.0]))


def cautious(mean: float, n: int, spread: float, direction: int = -1) -> float:
    """A mean, made worse by four standard errors: settings are ranked by it where they have different numbers of runs.
    Of a hundred settings with one seed each, the luckiest lies 2.5 deviations above its mean.
    """
    return mean + (-direction or 1) * 4 * spread / math.sqrt(n)


def versions(store: Store, runs: Iterable[Run]) -> list[str]:
    """A sentence for every task, estimator, rule or objective whose code changed between these runs: means pool its
    versions. Runs that recorded no version are not counted."""
    origins: dict[str, dict[str, Any]] = {}
    counts: dict[str, dict[str, int]] = {}
    for run in runs:
        if run.provenance_id not in origins:
            origins[run.provenance_id] = store.provenance(run.id)
        for key, mark in origins[run.provenance_id].items():
            if mark and (name := _source_name(run, key)):
                of_name = counts.setdefault(name, {})
                of_name[str(mark)] = of_name.get(str(mark), 0) + 1
    return [
        f"{sum(of_name.values()):,} runs of {name} were trained by {len(of_name)} versions of its code "
        f"({', '.join(f'{count:,}' for count in sorted(of_name.values(), reverse=True))}), which count as one"
        for name, of_name in counts.items()
        if len(of_name) > 1
    ]


def column(name: str) -> str:
    """A field as a column of a table that has statistics too."""
    return CONFIG + name if name in STATISTICS else name


def _source_name(run: Run, key: str) -> str:
    """What a mark of source code in a provenance is of; empty for every other fact."""
    if key == "task_source":
        return f"the task {run.task}"
    if key == "estimator_source":
        return f"the estimator {run.estimator}"
    if key.startswith("rule_source_"):
        return f"the rule {key.removeprefix('rule_source_')}"
    return f"the objective {run.config['objective']}" if key == "file" and "objective" in run.config else ""


def _key(run: Run, name: str) -> tuple[str, Any]:
    """A field to group by, with its kind where equal values differ: True is not 1, None is not a missing field, and
    among the parameters of an objective 3 is not 3.0."""
    value = field(run, name)
    if value is None and has_field(run, name):
        return "given", "None"
    if isinstance(value, bool) or name.removeprefix(CONFIG).startswith("parameters."):
        return type(value).__name__, value
    return "", value


def _check_metric(metric: str, rows: Sequence[Row]) -> None:
    """Raise `StoreError` where none of the runs that are done has the metric as one number."""
    done = [row for row in rows if row.done]
    for row in done:
        if metric in row.history:
            parts = [name for name, _ in row.history[metric].components(metric)]
            raise StoreError(f"{metric!r} is one of many: choose among {', '.join(parts[:8])}, ..")
    if known := sorted({name for row in done for name in row.history}):
        raise StoreError(
            f"no run has the metric {metric!r}; there are {', '.join(known)}." + did_you_mean(metric, known)
        )
