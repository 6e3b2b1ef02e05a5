"""One name, one thing: what the `register` functions refuse."""

from dataclasses import fields
from reprlib import Repr
from typing import Any

HOW = "give yours another name or, where it is the same one changed, as in a notebook, register it with replace=True"
_text = Repr()
_text.maxstring = 60


def refuse_other(kind: str, known: Any, new: Any) -> None:
    """Raise `ValueError` where `new`, a card or a study, differs from the one that is known by its name."""
    pairs = {spec.name: (getattr(known, spec.name), getattr(new, spec.name)) for spec in fields(new)}
    differs = ", ".join(name + _values(old, now) for name, (old, now) in pairs.items() if old != now)
    if differs:
        raise ValueError(f"there is a {kind} called {new.name!r} already, which differs in {differs}: {HOW}")


def _values(old: Any, now: Any) -> str:
    """Texts and numbers; of others the name of the field says enough."""
    plain = isinstance(old, str | int | float) and isinstance(now, str | int | float)
    return f" ({_text.repr(old)}, now {_text.repr(now)})" if plain else ""
