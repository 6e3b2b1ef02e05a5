"""The two temperatures of any estimator, so that runs of different estimators share two columns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dst_lab.estimators import kinds


class Temperatures(NamedTuple):
    """Forward and backward temperature, None where there is none, and the schedules they follow, "" where constant."""

    tau_f: float | None
    tau_b: float | None
    schedule: str


def temperatures(estimator: Mapping[str, Any]) -> Temperatures:
    """What `config["estimator"]` means in tau_f (how the choice is drawn) and tau_b (how the gradient flows).

    | estimator | tau_f | tau_b |
    |---|---|---|
    | decoupled | tau_f | tau_b |
    | softmax STE | tau | tau |
    | Gumbel STE | 1: it always draws at temperature 1 | tau |
    | identity STE | 0: the argmax | none: the gradient passes unchanged |
    | soft | none: nothing is drawn | tau |

    A schedule such as "2.0:0.25:linear" counts with its first value; a rule such as "self" has none. An estimator that
    this process does not know has the two that its config names.
    """
    sources = _sources(estimator)
    given = {name: estimator.get(of) if isinstance(of, str) else of for name, of in sources.items()}
    schedule = ";".join(f"{name}={value}" for name, value in given.items() if isinstance(value, str))
    return Temperatures(_first(given["tau_f"]), _first(given["tau_b"]), schedule)


def shown_by(estimator: Mapping[str, Any]) -> set[str]:
    """The fields of `config["estimator"]` that its two temperatures are made of."""
    return {source for source in _sources(estimator).values() if isinstance(source, str)}


def _sources(estimator: Mapping[str, Any]) -> dict[str, str | float | None]:
    """The field, or the number, that each of the two temperatures comes from."""
    kind = kinds().get(str(estimator["name"]).replace("-", "_"))
    return {"tau_f": kind.draw, "tau_b": kind.backward} if kind else {"tau_f": "tau_f", "tau_b": "tau_b"}


def _first(value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        return float(value.split(":")[0]) if isinstance(value, str) else float(value)
    except ValueError:
        return None  # a rule, by its name
