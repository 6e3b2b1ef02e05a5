"""Conditions on the fields of runs, as they are typed: `tau_f<=0.3`, `seed>=1000`, `estimator=softmax-ste`."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dst_lab.cards import DATASETS
from dst_lab.estimators import course, kinds
from dst_lab.records.fields import check_fields, field
from dst_lab.runs import CONFIGS, LR_SCHEDULES, OPTIMISERS, WHOLE
from dst_lab.shown import did_you_mean
from dst_lab.store import Run, StoreError
from dst_lab.store.record import STATUSES

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
        if sign in _COMPARED and _number(value) is None:
            raise StoreError(f"sizes are compared with a number, got {text!r}")
        if name in ("estimator", "estimator.name"):
            name, value = "estimator", value.replace("-", "_")
        new = Condition(name, sign, value)
        for other in conditions:
            if (other.field, other.sign, sign) == (name, "=", "=") and not _same(other.text, value):
                raise StoreError(f"no run has two values of {name}, got {other} and {new}")
        conditions.append(new)
    return conditions


def fits(run: Run, conditions: Iterable[Condition]) -> bool:
    """True where all conditions hold for the fields of a run. Call `check_conditions` first: a field that no run has
    differs from every value, so that a slip of the pen in `tau_f!=1` would fit all runs."""
    return all(condition.holds(field(run, condition.field)) for condition in conditions)


def check_conditions(conditions: Sequence[Condition], runs: Sequence[Run]) -> None:
    """Raise `StoreError` for a field or a word that does not exist, and for an inequality that would leave out none of
    the runs: it may be a slip of the pen, and what it spares may be removed."""
    check_fields([condition.field for condition in conditions], runs)
    for condition in conditions:
        values = [value for run in runs if (value := field(run, condition.field)) is not None]
        if condition.sign not in ("=", "!="):
            if values and not any(isinstance(value, int | float) for value in values):
                raise StoreError(f"{condition.field} is a number in no run, got {str(condition)!r}")
            continue
        if not values or condition.text.lower() == "none" or any(map(condition.equals, values)):
            continue
        texts = sorted({str(value) for value in values})
        words = _WORDS[condition.field]() if condition.field in _WORDS else []
        if words and condition.text not in words:
            known = sorted({*words, *texts})
            raise StoreError(
                f"{condition.field} is one of {', '.join(known)}, got {str(condition)!r}."
                + did_you_mean(condition.text, known)
            )
        are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if are_numbers and _as_recorded(condition.text) is None:
            raise StoreError(f"{condition.field} is a number in every run, got {str(condition)!r}")
        if condition.sign == "!=" and not words:
            several = ", ".join(texts[:8]) + (", .." if len(texts) > 8 else "")
            raise StoreError(
                f"every run would fit {str(condition)!r}, since none has this value: there are {several}."
                + did_you_mean(condition.text, texts)
            )


_WORDS: dict[str, Callable[[], Iterable[str]]] = {
    "status": lambda: STATUSES,
    "seeds": lambda: ("search", "fresh"),
    "task": lambda: list(CONFIGS),
    "estimator": lambda: list(kinds()),
    "dataset": lambda: [*DATASETS, *(f"{one}{WHOLE}" for one in DATASETS)],
    "optimiser": lambda: OPTIMISERS,
    "lr_schedule": lambda: LR_SCHEDULES,
}
"""What a field can be, besides what the runs have."""


def _same(one: str, other: str) -> bool:
    """True where two texts are one value, as `Condition.holds` reads them: 0.1 and 0.10, true and True."""
    recorded = _as_recorded(one)
    if recorded is not None and recorded == _as_recorded(other):
        return True
    if one == other or _parts(one) == _parts(other):
        return True
    return one.lower() == other.lower() and one.lower() in ("true", "false", "none")


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
    """A number, a schedule or a rule as records have it: 2.0:0.1:linear for 2:0.1:linear; None where it is none."""
    try:
        return str(course(text).to_json())
    except ValueError:
        return None
