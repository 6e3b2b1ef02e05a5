"""Conditions on the fields of runs, as they are typed: `tau_f<=0.3`, `seed>=1000`, `estimator=softmax-ste`."""

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dst_lab.configs.config import course
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
            return self._equals(value) == (self.sign == "=")
        return isinstance(value, int | float) and _COMPARED[self.sign](float(value), float(self.text))

    def _equals(self, value: Any) -> bool:
        if isinstance(value, bool) or value is None:
            return str(value).lower() == self.text.lower()
        if isinstance(value, str):  # the ids 02e8164723156083 and 12e2346552973723 would both be infinite numbers
            return value == self.text or (":" in value and value == _as_recorded(self.text))
        try:
            return float(value) == float(self.text)
        except ValueError:
            return str(value) == self.text


def parse(texts: Iterable[str]) -> list[Condition]:
    """The conditions, of which a run fits all; StoreError where one is none, or two cannot both hold."""
    conditions: list[Condition] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if not match:
            raise StoreError(f"a condition is FIELD=VALUE, or a comparison such as tau_f<=0.3 or seed!=0, got {text!r}")
        name, sign, value = match.groups()
        sign = "=" if sign == "==" else sign
        if sign in _COMPARED:
            _check_number(text, value)
        if name == "estimator":
            value = value.replace("-", "_")
        new = Condition(name, sign, value)
        for other in conditions:
            if (other.field, other.sign, sign) == (name, "=", "=") and not _same(other.text, value):
                raise StoreError(f"no run has two values of {name}, got {other} and {new}")
        conditions.append(new)
    return conditions


def _same(one: str, other: str) -> bool:
    """True where two texts are one value, as `Condition.holds` reads them: 0.1 and 0.10, true and True."""
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower() and one.lower() in ("true", "false", "none")


def _as_recorded(text: str) -> str:
    """A schedule or a rule as records have it: 2.0:0.1:linear for 2:0.1:linear; any other text as it is."""
    try:
        return str(course(text).to_json())
    except ValueError:
        return text


def _check_number(text: str, value: str) -> None:
    try:
        float(value)
    except ValueError:
        raise StoreError(f"sizes are compared with a number, got {text!r}") from None
