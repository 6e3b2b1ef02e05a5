"""The fields of runs by their names, and conditions on them as they are typed: `tau_f<=0.3`, `seed>=1000`."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dst_lab.estimators import course
from dst_lab.runs import FRESH
from dst_lab.store import Run, StoreError

WORDS = ("id", "status", "seeds")
"""Facts about every run that are not in its config. A task may have fields of the same names."""
CONFIG = "config."
"""Before a name: the config's field of this name, and nothing else."""


def field(run: Run, name: str) -> Any:
    """A field of a run by its dotted name; "tau_f" will do for "estimator.tau_f". None where the run lacks it.

    `seeds` is "search" for a seed that settings are chosen on, "fresh" for one that confirms them. A config's own field
    of that name, or `status` or `id`, is `config.seeds` and so on.
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


def has_field(run: Run, name: str) -> bool:
    """True where a run has the field, even where its value is None."""
    own = name.removeprefix(CONFIG)
    # The estimator's name is "estimator": as in `field`, "name" is none.
    called = {own} if own == "name" else {own, f"estimator.{own}"}
    return field(run, name) is not None or bool(called & {*names(run.fields)})


def check_fields(wanted: Iterable[str], runs: Sequence[Run]) -> None:
    """Raise `StoreError` for a field that none of the runs has, where there are any."""
    for name in wanted:
        if runs and not any(has_field(run, name) for run in runs):
            known = sorted({known for run in runs for known in names(run.fields)})
            short = [one.removeprefix("estimator.") for one in known]
            raise StoreError(
                f"no run has the field {name!r}; there are {', '.join([*WORDS, *known])}."
                + did_you_mean(name, [*WORDS, *known, *short])
            )


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """A config's value by its dotted name, a list as text; None where the config does not have it."""
    value = _inside(config, name)
    return str(value) if isinstance(value, dict | list) else value


def _inside(value: Any, name: str) -> Any:
    """The value at a dotted name. A key may itself have dots, such as the parameter `model.depth` of an objective."""
    if not isinstance(value, Mapping):
        return None
    if name in value:
        return value[name]
    dots = [place for place, character in enumerate(name) if character == "."]
    values = (_inside(value[name[:dot]], name[dot + 1 :]) for dot in dots if name[:dot] in value)
    return next((one for one in values if one is not None), None)


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


def by_size(text: str) -> tuple[bool, float, str]:
    """A key to sort values by that are given as text: numbers first, by their size."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def described(run: Run) -> str:
    """A run in words: task, estimator with its numbers, seed and id."""
    numbers = [f"{name}={value}" for name, value in run.config["estimator"].items() if name != "name"]
    return " ".join([run.task, run.estimator, *numbers, f"seed={run.seed}", f"({run.id})"])


_FORM = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==?|<|>)\s*([^=<>].*?|)\s*", re.DOTALL)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """A field, a sign and what was typed after it."""

    field: str
    sign: str
    text: str

    def holds(self, value: Any) -> bool:
        """True where the value fits: a number is compared as a number, a text as text, whatever it looks like; only
        numbers are smaller or larger. A field that a run does not have (None) is neither equal to anything nor smaller
        or larger."""
        if self.sign in ("=", "!="):
            return self.equals(value) == (self.sign == "=")
        return isinstance(value, int | float) and _COMPARED[self.sign](float(value), float(self.text))

    def equals(self, value: Any) -> bool:
        """True where what was typed is this value, or the beginning of this id."""
        if isinstance(value, bool) or value is None:
            return str(value).lower() == self.text.lower()
        if self.field == "id":
            return bool(self.text) and str(value).startswith(self.text)
        if isinstance(value, str):
            is_list = value.startswith("[") and _parts(value) == _parts(self.text)
            return value == self.text or is_list or (":" in value and value == _as_recorded(self.text))
        return float(value) == _number(self.text)


def parse(texts: Iterable[str]) -> list[Condition]:
    """The conditions in these texts; StoreError where a text is not one."""
    conditions: list[Condition] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if not match:
            raise StoreError(f"a condition is FIELD=VALUE, or a comparison such as tau_f<=0.3 or seed!=0, got {text!r}")
        name, sign, value = match.groups()
        sign = "=" if sign == "==" else sign
        if sign in _COMPARED and _number(value) is None:
            raise StoreError(f"sizes are compared with a number, got {text!r}")
        if name in ("estimator", "estimator.name"):
            name, value = "estimator", value.replace("-", "_")
        conditions.append(Condition(name, sign, value))
    return conditions


def chosen(runs: Sequence[Run], where: Iterable[str]) -> list[Run]:
    """The runs that fit all conditions. A field that no run has is an error: `tuaf!=1`, a typing mistake, would
    otherwise fit all runs."""
    conditions = parse(where)
    check_fields([condition.field for condition in conditions], runs)
    return [run for run in runs if all(one.holds(field(run, one.field)) for one in conditions)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parts(text: str) -> list[float | str]:
    """The parts of a list, as it is typed or as it is written: 64,64 and [64, 64] and (64, 64)."""
    parts = [part.strip().strip("'\"") for part in text.strip().strip("[]()").split(",")]
    return [part if (value := _number(part)) is None else value for part in parts]


def _as_recorded(text: str) -> str | None:
    """A number, a schedule or a rule as it is recorded, 2.0:0.1:linear for 2:0.1:linear; None for other text."""
    try:
        return str(course(text).to_json())
    except ValueError:
        return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the known name that is most like this one, to follow a sentence; empty where none is."""
    close = get_close_matches(name, list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""
