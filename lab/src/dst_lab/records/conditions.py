"""Conditions on the fields of runs, as they are typed: `tau_f<=0.3`, `seed>=1000`, `estimator=softmax-ste`."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dst_lab.estimators import course
from dst_lab.records.fields import check_fields, field
from dst_lab.store import Run, StoreError

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
