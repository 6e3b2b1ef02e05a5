"""The config of a run of your own training function."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dst_lab.estimators import Choice
from dst_lab.runs import OWN_FIELDS, Config


@dataclass(frozen=True, kw_only=True)
class OwnConfig(Config):
    """A run of a function of one's own: it is known by the function's name and version, its parameters and the seed.

    The parameters of `OWN_FIELDS` are fields; the others are kept together. A field that is not given has its default,
    so one that is given with that very value is kept with the others too: a run with it is another run.
    """

    task: ClassVar[str] = "own"
    objective: str = field(default="")
    lr: float = 1.0
    dataset: str = ""
    batch: int = 1
    parameters: tuple[tuple[str, Any], ...] = field(default=(), metadata={"omit": True})
    version: str = field(default="", metadata={"omit": True})
    absent: frozenset[str] = field(default=frozenset(), metadata={"omit": True})
    """The estimator's temperatures and options that the objective is not given: no record has them, since its own
    defaults hold, which are not known here."""

    def __eq__(self, other: object) -> bool:
        """Configs are equal where their runs are one: parameters 1, 1.0 and True make three."""
        return isinstance(other, OwnConfig) and self.run_id == other.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OWN_FIELDS} | dict(self.parameters)

    def type_of(self, name: str) -> Any:
        return super().type_of(name) if name in OWN_FIELDS else None

    def with_values(self, estimator: Choice, values: Mapping[str, Any]) -> "OwnConfig":
        config = replace(self, estimator=estimator)
        for name, value in values.items():
            config = config.with_value(name, value)
        return config

    def with_value(self, name: str, value: Any) -> "OwnConfig":
        """The config with one parameter changed, or one more."""
        others = dict(self.parameters)
        if name not in OWN_FIELDS:
            return replace(self, parameters=_ordered({**others, name: value}))
        config = replace(self, **{name: value})
        others.pop(name, None)
        given = getattr(config, name)  # in the field's type
        if given == getattr(OwnConfig, name):
            others[name] = given
        return replace(config, parameters=_ordered(others))

    @classmethod
    def completed(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """What the objective was given. A field at its default was not given, unless its value is also among the other
        parameters, from which it is left out then."""
        parameters = config.get("parameters", {})
        if not isinstance(parameters, Mapping):  # a record that was not made here
            return dict(config)
        not_given = [name for name in OWN_FIELDS if config.get(name) == getattr(cls, name) and name not in parameters]
        others = {name: value for name, value in parameters.items() if name not in OWN_FIELDS}
        values = {name: value for name, value in config.items() if name not in (*not_given, "parameters")}
        return {**values, "parameters": others} if others else values

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        values.pop("absent", None)
        values["estimator"] = {key: value for key, value in values["estimator"].items() if key not in self.absent}
        return {**values, "parameters": dict(self.parameters)} if self.parameters else values


def key_of(value: Any) -> Any:
    """A parameter's value, or a tuple of them, as a key that tells True from 1."""
    return tuple(map(key_of, value)) if isinstance(value, tuple) else (isinstance(value, bool), value)


def _ordered(parameters: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The parameters, `OWN_FIELDS` first: configs of the same values are equal, whichever was given last."""
    first = {name: parameters[name] for name in OWN_FIELDS if name in parameters}
    return tuple({**first, **parameters}.items())
