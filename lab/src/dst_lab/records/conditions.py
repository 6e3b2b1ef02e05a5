"""Conditions on the fields of runs, as they are typed: `tau_f<=0.3`, `seed>=1000`, `estimator=softmax-ste`."""

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dst_lab.estimators import course
from dst_lab.store.errors import StoreError

_FORM = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A field, a sign and what was typed after it."""

    field: str
    sign: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}{self.sign}{self.text}"

    def holds(self, value: Any) -> bool:
        """True where the value fits: a number is compared as a number, a text as text, whatever it looks like; only
        numbers are smaller or larger. A field that a run does not have (None) is neither equal to anything nor smaller
        or larger."""
        if self.sign in ("=", "!="):
            return self.equals(value) == (self.sign == "=")
        return isinstance(value, int | float) and _COMPARED[self.sign](float(value), float(self.text))

    def equals(self, value: Any) -> bool:
        """True where what was typed is this value."""
        if isinstance(value, bool) or value is None:
            return str(value).lower() == self.text.lower()
        if isinstance(value, str):  # the ids 02e8164723156083 and 12e2346552973723 would both be infinite numbers
            listed = value.startswith("[") and _parts(value) == _parts(self.text)
            return value == self.text or listed or (":" in value and value == as_recorded(self.text))
        return float(value) == number(self.text)


def parse(texts: Iterable[str]) -> list[Condition]:
    """The conditions, of which a run fits all; StoreError where one is none, or two cannot both hold."""
    conditions: list[Condition] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if not match:
            raise StoreError(f"a condition is FIELD=VALUE, or a comparison such as tau_f<=0.3 or seed!=0, got {text!r}")
        name, sign, value = match.groups()
        sign = "=" if sign == "==" else sign
        if value[:1] in ("=", "<", ">"):
            raise StoreError(f"a condition has one of the signs <= >= != == = < >, got {text!r}")
        if sign in _COMPARED:
            _check_number(text, value)
        if name in ("estimator", "estimator.name"):
            name, value = "estimator", value.replace("-", "_")
        new = Condition(name, sign, value)
        for other in conditions:
            if (other.field, other.sign, sign) == (name, "=", "=") and not _same(other.text, value):
                raise StoreError(f"no run has two values of {name}, got {other} and {new}")
        conditions.append(new)
    return conditions


def _same(one: str, other: str) -> bool:
    """True where two texts are one value, as `Condition.holds` reads them: 0.1 and 0.10, true and True."""
    recorded = as_recorded(one)
    if recorded is not None and recorded == as_recorded(other):
        return True
    if one == other or _parts(one) == _parts(other):
        return True
    return one.lower() == other.lower() and one.lower() in ("true", "false", "none")


def number(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _parts(text: str) -> list[float | str]:
    """The parts of a list, as it is typed or as it is written: 64,64 and [64, 64] and (64, 64)."""
    parts = [part.strip().strip("'\"") for part in text.strip().strip("[]()").split(",")]
    return [part if (value := number(part)) is None else value for part in parts]


def is_list_of_numbers(text: str) -> bool:
    """True for 64 and 64,64 and [64, 64]."""
    return all(isinstance(part, float) for part in _parts(text))


def as_recorded(text: str) -> str | None:
    """A number, a schedule or a rule as records have it: 2.0:0.1:linear for 2:0.1:linear; None where it is none."""
    try:
        return str(course(text).to_json())
    except ValueError:
        return None


def _check_number(text: str, value: str) -> None:
    if number(value) is None:
        raise StoreError(f"sizes are compared with a number, got {text!r}")
