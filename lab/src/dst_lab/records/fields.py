"""What `dst show` prints, as plain data: runs filtered, grouped, and one metric summarised over each group."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dst_lab.cards import DATASETS
from dst_lab.cards import metric as card
from dst_lab.estimators import kinds, numbers_of
from dst_lab.records.conditions import Condition, as_recorded, is_list_of_numbers, number, parse
from dst_lab.runs import CONFIGS, FRESH, LR_SCHEDULES, OPTIMISERS, WHOLE
from dst_lab.store.errors import StoreError
from dst_lab.store.record import STATUSES, Run, Series
from dst_lab.store.store import Store

WORDS = ("id", "status", "seeds")
"""What is known of every run beside its config, by names that a field of a task may have too."""
STATISTICS = ("n", "mean", "std", "min", "max", "best", "diverged", "failed", "stopped", "worse")
"""The columns of a table after those of its groups."""
CONFIG = "config."
"""Before the name of a field: the config's, whatever else has that name."""


def summarise(
    store: Store,
    *,
    metric: str,
    where: Sequence[str] = (),
    group: Sequence[str] = ("task", "estimator"),
    at: str = "last",
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """One dictionary per group: its fields, then the `STATISTICS`. A field with the name of one is `config.n` there.

    `where` are conditions such as "tau_f<=0.3" or "estimator=decoupled"; a run must fit all of them. They and `group`
    name fields of the config, dotted where nested ("lr", "estimator.tau_f"; "tau_f" will do inside "estimator",
    which alone is its name), "status", "id", or "seeds" (see `field`). A field that is given as None is the text
    "None" in a group, and a field that its runs do not have is None. `only` are the ids of the runs that count (None:
    all). Each run counts with its `at="last"` value or its `at="best"`, the good end by the metric's card, such as the
    lowest for a loss. Mean, standard deviation (n - 1; None for one run) and extremes are over the `n` runs that are
    done and have the metric; `best` is the good extreme (None where the card does not say which). `diverged`, `failed`
    and `stopped` runs are counted, never averaged in; `worse` are those of the `n` that ended worse than untrained.
    """
    if at not in ("last", "best"):
        raise StoreError(f"a run counts with its 'last' or its 'best' value: got at={at!r}")
    direction = card(metric).direction
    runs = store.runs()
    conditions = parse(where)
    check_fields(group, runs)
    check_conditions(conditions, runs)
    group = [column(name) for name in group]
    groups: dict[tuple[tuple[str, Any], ...], list[Run]] = {}
    for run in runs:
        if (only is None or run.id in only) and fits(run, conditions):
            groups.setdefault(tuple(_told(run, name) for name in group), []).append(run)

    table, known, parts = [], set[str](), dict[str, None]()
    for key, members in sorted(groups.items(), key=lambda item: [order(value) for _, value in item[0]]):
        values = []
        for run in members:
            if run.status != "done":
                continue
            history = store.history(run.id)
            components = _components(history, metric)
            series = components.get(metric)
            known.update(history)
            parts.update(dict.fromkeys(components))
            if series is not None and series.size:
                values.append(float(series[-1]) if at == "last" else _best(series, direction))
        fields = {name: value for name, (_, value) in zip(group, key, strict=True)}
        table.append({**fields, **_statistics(values, direction), **_ends(members)})
    if not any(row["n"] for row in table):
        if parts and metric not in parts:
            raise StoreError(f"{metric!r} is one of many: choose among {', '.join(list(parts)[:8])}, ..")
        if known:
            raise StoreError(f"no run has the metric {metric!r}; there are {', '.join(sorted(known))}.")
    if known and at == "best" and direction == 0:
        raise StoreError(
            f"whether a high or a low {metric!r} is best is not known. Ask for each run's last value: --at last; or "
            "register a card that says so (dst_lab.cards)."
        )
    return table


def column(name: str) -> str:
    """A field as a column of a table that has statistics too."""
    return CONFIG + name if name in STATISTICS else name


def field(run: Run, name: str) -> Any:
    """A field of a run by its dotted name, one of its estimator also by its own ("tau_f"); None where it has none.

    `seeds` tells those that choose a setting ("search") from those that confirm it ("fresh"). A field of the config
    that is called so, or `status` or `id`, is `config.seeds`.
    """
    if name in ("status", "id"):
        return getattr(run, name)
    if name == "seeds":
        return "fresh" if run.seed >= FRESH else "search"
    name = name.removeprefix(CONFIG)
    estimator = run.config.get("estimator")
    if name not in (*run.fields, "name") and isinstance(estimator, Mapping) and name in estimator:
        name = f"estimator.{name}"
    return run.estimator if name == "estimator" else value_at(run.fields, name)


def _told(run: Run, name: str) -> tuple[str, Any]:
    """A field as groups go by it, after what tells it from an equal one: True from 1, None from what is not there, and
    among the parameters of an objective 3 from 3.0, which it was called with in two runs."""
    value = field(run, name)
    if value is None and _has(run, name):
        return "given", "None"
    if isinstance(value, bool) or name.removeprefix(CONFIG).startswith("parameters."):
        return type(value).__name__, value
    return "", value


def _has(run: Run, name: str) -> bool:
    own = name.removeprefix(CONFIG)
    # The estimator's name is "estimator": as in `field`, "name" is none.
    called = {own} if own == "name" else {own, f"estimator.{own}"}
    return field(run, name) is not None or bool(called & {*names(run.fields)})


def fits(run: Run, conditions: Iterable[Condition]) -> bool:
    """True where all conditions hold for the fields of a run. Call `check_conditions` first: a field that no run has
    differs from every value, so that a slip of the pen in `tau_f!=1` would fit all runs."""
    return all(condition.holds(field(run, condition.field)) for condition in conditions)


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """A config's value by its dotted name, a list as text; None where there is none."""
    value = _inside(config, name)
    return str(value) if isinstance(value, dict | list) else value


def _inside(value: Any, name: str) -> Any:
    """A key may have dots of its own: that of a parameter of somebody's own objective, such as `model.depth`."""
    if not isinstance(value, Mapping):
        return None
    if name in value:
        return value[name]
    dots = [place for place, character in enumerate(name) if character == "."]
    values = (_inside(value[name[:dot]], name[dot + 1 :]) for dot in dots if name[:dot] in value)
    return next((one for one in values if one is not None), None)


def check_fields(wanted: Iterable[str], runs: Sequence[Run]) -> None:
    """Raise `StoreError` for a field that none of the runs has, where there are any."""
    for name in wanted:
        if runs and not any(_has(run, name) for run in runs):
            known_fields = sorted({known for run in runs for known in names(run.fields)})
            raise StoreError(f"no run has the field {name!r}; there are id, status, seeds, {', '.join(known_fields)}.")


def check_conditions(conditions: Iterable[Condition], runs: Sequence[Run]) -> None:
    """Raise `StoreError` for a field that none of the runs has, and for a value that no run could have, of which `!=`
    would be true for all."""
    conditions = list(conditions)
    check_fields([condition.field for condition in conditions], runs)
    for condition in conditions:
        if condition.text.lower() == "none":
            continue
        values = [value for run in runs if (value := field(run, condition.field)) is not None]
        if condition.sign not in ("=", "!="):
            if values and not any(isinstance(value, int | float) for value in values):
                raise StoreError(f"{condition.field} is a number in no run, got {str(condition)!r}")
            continue
        words = _words(condition.field, values)
        if words is not None and condition.text not in words:
            raise StoreError(f"{condition.field} is one of {', '.join(sorted(words))}, got {str(condition)!r}")
        if words is None and values and not any(condition.equals(value) for value in values):
            _check_value(condition, values)


def _check_value(condition: Condition, values: Sequence[Any]) -> None:
    """Raise `StoreError` for a value that no run has, nor could have."""
    kinds = {_kind(value) for value in values}
    if condition.text.lower() in ("true", "false") and _TRUTH in kinds:
        return
    if _could_be_number(condition) and {_NUMBER, _COURSE} & kinds:
        return
    if not {_TEXT, _LIST} & kinds:
        raise StoreError(f"{condition.field} is {' or '.join(sorted(kinds))} in every run, got {str(condition)!r}")
    listed = _LIST in kinds and is_list_of_numbers(condition.text)
    if condition.sign == "!=" and not listed:
        texts = sorted({str(value) for value in values})
        several = ", ".join(texts[:8]) + (", .." if len(texts) > 8 else "")
        raise StoreError(f"every run would fit {str(condition)!r}, since none has this value: there are {several}")


_TRUTH, _NUMBER, _COURSE, _TEXT, _LIST = "true or false", "a number", "a schedule or a rule", "a text", "a list"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return _TRUTH
    if isinstance(value, int | float):
        return _NUMBER
    if str(value).startswith("["):
        return _LIST
    return _COURSE if number(str(value)) is None and as_recorded(str(value)) is not None else _TEXT


def _could_be_number(condition: Condition) -> bool:
    """True for a number, and for what may stand in the place of one: a schedule, a rule, a word of some option."""
    options = [numbers_of(kind).get(condition.field.removeprefix("estimator.")) for kind in kinds().values()]
    words = [word for option in options if option for word in option.metadata.get("words", ())]
    return number(condition.text) is not None or as_recorded(condition.text) is not None or condition.text in words


def _words(name: str, values: Iterable[Any]) -> set[str] | None:
    """What a field can be, beside what the runs have; None where it can be anything."""
    known = {
        "status": STATUSES, "seeds": ("search", "fresh"), "task": CONFIGS, "estimator": kinds(),
        "dataset": [*DATASETS, *(f"{one}{WHOLE}" for one in DATASETS)], "optimiser": OPTIMISERS,
        "lr_schedule": LR_SCHEDULES,
    }.get(name)  # fmt: skip
    return None if known is None else {*known, *map(str, values)}


def names(config: Mapping[str, Any], before: str = "") -> list[str]:
    """The dotted names of a config's fields."""
    listed = []
    for name, value in config.items():
        listed += names(value, f"{before}{name}.") if isinstance(value, Mapping) else [before + name]
    return listed


def order(value: Any) -> tuple[int, float, str]:
    """A key to sort by: numbers by size, then text, then what is missing."""
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, int | float):
        return 0, math.inf if math.isnan(value) else float(value), ""  # NaN has no place among numbers
    return 1, 0.0, str(value)


def _components(history: Mapping[str, Series], metric: str) -> dict[str, Any]:
    """The values of a metric, or of each of its components such as `perplexity[2]`, by name; none where it lacks."""
    name = metric if metric in history else metric.partition("[")[0]
    return dict(history[name].components(name)) if name in history else {}


def _best(values: Any, direction: int) -> float:
    numbers = values[~np.isnan(values)]
    if not numbers.size:
        return float("nan")
    return float(numbers.max() if direction > 0 else numbers.min())


def _statistics(values: list[float], direction: int) -> dict[str, Any]:
    array = np.array(values, dtype=np.float64)
    if not array.size:
        return {"n": 0, "mean": None, "std": None, "min": None, "max": None, "best": None}
    low, high = float(array.min()), float(array.max())
    return {
        "n": array.size,
        "mean": float(array.mean()),
        "std": _deviation(array) if array.size > 1 else None,
        "min": low,
        "max": high,
        "best": {-1: low, 0: None, 1: high}[direction],
    }


def _deviation(values: npt.NDArray[np.float64]) -> float:
    if np.isfinite(values[0]) and (values == values[0]).all():
        return 0.0  # their mean may be rounded
    with np.errstate(invalid="ignore"):  # of infinities it is NaN
        return float(values.std(ddof=1))


def _ends(runs: list[Run]) -> dict[str, int]:
    ends = {status: sum(run.status == status for run in runs) for status in ("diverged", "failed", "stopped")}
    return ends | {"worse": sum("worse_than_untrained" in run.detail for run in runs)}
