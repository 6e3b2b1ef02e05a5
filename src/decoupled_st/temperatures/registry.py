"""The rules by name, and a rule from its dictionary."""

from collections.abc import Mapping
from typing import Any, TypeVar

from decoupled_st.estimators.spec import check_fields, is_again
from decoupled_st.temperatures.rule import Rule

_RULES: dict[str, type[Rule]] = {}
R = TypeVar("R", bound=type[Rule])


def register(cls: R) -> R:
    """Make a rule known by its `name`; a decorator for its class.

    Example:
        >>> from decoupled_st import temperatures
        >>> temperatures.registered()["self"]
        <class 'decoupled_st.temperatures.self_tempered.SelfTempered'>
    """
    name = cls.name
    if name in _RULES and not is_again(cls, _RULES[name]):
        taken = f"{_RULES[name].__module__}.{_RULES[name].__qualname__}"
        raise ValueError(f"the name {name!r} belongs to {taken} already: give {cls.__name__} another")
    _RULES[name] = cls
    return cls


def registered() -> dict[str, type[Rule]]:
    """The known rules, by name."""
    return dict(_RULES)


def from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule that `to_dict` described; constants that are left out have their defaults.

    Example:
        >>> from decoupled_st import temperatures
        >>> temperatures.from_dict({"name": "self", "steps": 900}) == temperatures.SelfTempered(steps=900)
        True
    """
    rest = dict(values)
    name = rest.pop("name", None)
    if name not in _RULES:
        raise ValueError(
            f"unknown rule {name!r}: expected one of {', '.join(sorted(_RULES))}; dst.from_dict makes estimators"
        )
    cls = _RULES[name]
    check_fields(f"rule {name!r}", cls, rest)
    return cls(**rest)
