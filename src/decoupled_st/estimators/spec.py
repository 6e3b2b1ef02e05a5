"""Estimators as values: small, frozen, comparable, good in configs and as dictionary keys; and their registry."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, CategoricalOptions, Unpack
from decoupled_st.estimators.contract import check_float

FORWARD: Mapping[str, Any] = {"temperature": True, "check": lambda name, value: check_float(name, value, zero=True)}
"""Metadata of a field: a temperature that may be 0, the argmax."""
TEMPERATURE: Mapping[str, Any] = {"temperature": True, "check": check_float}
"""Metadata of a field: a temperature above 0."""


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """A choice of estimator and its parameters. Call `.categorical(logits, ...)` or `.binary(logits, ...)`.

    Temperatures here are floats; for tensors, call the functions in `categorical` and `binary`.

    A subclass names itself and its two functions, says what it draws and which temperature its surrogate has, and by
    each field's metadata what the field may be: `"check"` is a function of the field's name and value that returns the
    value or raises, `"temperature"` is True for temperatures. A field without a check is taken as it is; `register`
    wants one for each.
    """

    name: ClassVar[str]
    functions: ClassVar[Mapping[str, Callable[..., Tensor]]]
    """`"categorical"` and `"binary"`: the functions, which take the fields as keywords, temperatures as tensors too."""
    discrete: ClassVar[bool] = True
    """True where the output is a choice; False for relaxations."""
    label: ClassVar[str]
    """The name as in tables and figures; unless given, the name with spaces."""
    draw: ClassVar[str | float | None]
    """The temperature of the softmax that is drawn from: the name of a field, or a number, 0 for the argmax; None where
    the choice is relaxed. Unless given, the first temperature."""
    surrogate: ClassVar[str] = "own"
    """What carries the gradient: "identity"; "clean", the softmax of the logits; "perturbed", that of logits and noise;
    "second order", a midpoint of choice and softmax; "gapped", the softmax of logits among which the choice leads;
    "averaged", "perturbed" averaged over noise that would have drawn the same; "clipped", sparsemax; or a word of your
    own."""
    backward: ClassVar[str | None]
    """The field with the temperature of the surrogate; None where it has none. Unless given, the last temperature."""

    def __post_init__(self) -> None:
        if not hasattr(self, "functions"):
            raise TypeError(f"{type(self).__name__} is abstract: an estimator has a name and functions")
        for field in fields(self):
            if check := field.metadata.get("check"):
                object.__setattr__(self, field.name, check(field.name, getattr(self, field.name)))

    @property
    def sample_temperature(self) -> float:
        """The temperature of the distribution the choice is drawn from (or relaxes); 0 where it is the argmax."""
        if self.draw is None:
            raise NotImplementedError(f"{type(self).__name__} relaxes its choice, and does not say which")
        return getattr(self, self.draw) if isinstance(self.draw, str) else self.draw

    def deterministic(self) -> "Estimator":
        """The argmax, with the surrogate at the logits themselves: what a network with fixed choices computes."""
        if self.backward is None:
            return self
        # Not by from_dict, which torch.compile cannot trace.
        decoupled: Callable[..., Estimator] = _registry["decoupled"]
        return decoupled(tau_f=0.0, tau_b=getattr(self, self.backward))

    def categorical(self, logits: Tensor, **options: "Unpack[CategoricalOptions]") -> Tensor:
        """One-hot along `dim`; the function of this name in `decoupled_st.categorical`, with its options."""
        return self.functions["categorical"](logits, **self.parameters(), **options)

    def binary(self, logits: Tensor, **options: "Unpack[BinaryOptions]") -> Tensor:
        """0 or 1 from log-odds; the function of this name in `decoupled_st.binary`, with its options."""
        return self.functions["binary"](logits, **self.parameters(), **options)

    def parameters(self) -> dict[str, Any]:
        """The fields by name: temperatures, and what else an estimator has."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def temperatures(cls) -> tuple[str, ...]:
        """The names of the fields that are temperatures."""
        return tuple(field.name for field in fields(cls) if field.metadata.get("temperature"))

    def at(self, temperatures: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with some temperatures, floats or tensors, in place of their own."""
        known = [field.name for field in fields(self) if field.metadata.get("temperature")]
        if unknown := [name for name in temperatures if name not in known]:
            raise ValueError(
                f"the temperatures of {self} are {', '.join(known) or 'none'}: got {unknown} in temperatures="
            )
        return {**self.parameters(), **temperatures}

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, `{"name": ..., fields ...}`; `from_dict` reads it back."""
        return {"name": self.name, **asdict(self)}


_registry: dict[str, type[Estimator]] = {}
_COMMON = {"generator", "noise", "grad_scale"}
_TAKEN = {"categorical": _COMMON | {"dim", "mask"}, "binary": _COMMON}
E_ = TypeVar("E_", bound=type[Estimator])


def register(cls: E_) -> E_:
    """Make an estimator known by its name: to `from_dict`, and to whoever looks it up with `registered`.

    Its functions must take its fields and the common arguments (`generator`, `noise`, `grad_scale`; for categories
    `dim` and `mask` too) as keywords. Use it as a decorator, above `@dataclass(frozen=True, kw_only=True)`.
    """
    name = cls.name
    if name in _registry and not is_again(cls, _registry[name]):
        taken = f"{_registry[name].__module__}.{_registry[name].__qualname__}"
        raise ValueError(f"an estimator named {name!r} is registered already, {taken}")
    if set(cls.functions) != set(_TAKEN):
        raise ValueError(f"{cls.__name__}.functions must have the keys {sorted(_TAKEN)}, got {sorted(cls.functions)}")
    own = {field.name for field in fields(cls)}
    for kind, function in cls.functions.items():
        parameters = inspect.signature(function).parameters
        missing = (own | _TAKEN[kind]) - parameters.keys()
        if missing and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            raise ValueError(f"the {kind} function of {cls.__name__} must take {sorted(missing)} as keywords")
    unchecked = sorted(field.name for field in fields(cls) if "check" not in field.metadata)
    if unchecked:
        raise ValueError(f'fields of {cls.__name__} without metadata={{"check": ...}}: {unchecked}')
    taus = cls.temperatures()
    drawn = taus[0] if taus else 0.0
    defaults = {
        "label": name.replace("_", " "),
        "draw": drawn if cls.discrete else None,
        "backward": taus[-1] if taus else None,
    }
    for fact, default in defaults.items():
        if not hasattr(cls, fact):
            setattr(cls, fact, default)
    _registry[name] = cls
    return cls


def is_again(cls: type, other: type) -> bool:
    """True where a class is the one registered before, made again: by a notebook's cell, or by a file that is both run
    and imported. The library's own are made once."""
    own = other.__module__.startswith("decoupled_st.") and cls.__module__ != other.__module__
    return cls.__qualname__ == other.__qualname__ and not own


def registered(name: str) -> type[Estimator]:
    """The class of the estimator of this name.

    Example:
        >>> import torch
        >>> registered("decoupled").temperatures()
        ('tau_f', 'tau_b')
        >>> registered("decoupled").functions["binary"](torch.tensor([2.0]), tau_f=torch.zeros(1), tau_b=1.0)
        tensor([1.])
    """
    if not isinstance(name, str) or name not in _registry:
        raise ValueError(f"unknown estimator name {name!r}: expected one of {', '.join(names())}")
    return _registry[name]


def names() -> tuple[str, ...]:
    """The names of all registered estimators, sorted."""
    return tuple(sorted(_registry))


def check_estimator(value: object) -> Estimator:
    """Refuse what is no estimator, where it is given rather than where it is first used."""
    if not isinstance(value, Estimator):
        raise TypeError(f"estimator must be a value such as Decoupled(tau_f=2.0, tau_b=0.5), got {value!r}")
    return value


def from_dict(values: Mapping[str, Any]) -> Estimator:
    """The estimator that `to_dict` described.

    Example:
        >>> from_dict({"name": "decoupled", "tau_f": 2.0, "tau_b": 0.5})
        Decoupled(tau_f=2.0, tau_b=0.5)
    """
    if not isinstance(values, Mapping):
        raise TypeError(f'values must be a dictionary such as {{"name": "identity_ste"}}, got {values!r}')
    rest = dict(values)
    try:
        cls = registered(rest.pop("name", None))
    except ValueError as error:
        raise ValueError(f"{error}; dst.temperatures.from_dict makes rules") from None
    check_fields(f"estimator {cls.name!r}", cls, rest)
    return cls(**rest)


def check_fields(what: str, cls: Any, given: Mapping[str, Any]) -> None:
    """Refuse values that are not those of the fields of a dataclass."""
    expected = {field.name for field in fields(cls)}
    required = {field.name for field in fields(cls) if field.default is field.default_factory is MISSING}
    if not required <= given.keys() <= expected:
        raise ValueError(f"{what} takes {sorted(expected) or 'no temperature'}, got {sorted(map(str, given))}")
