"""What an objective is beside its name: its source and the values bound to it, so that a change can be told."""

import dis
import hashlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Number
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from dst_lab.store import Store

Objective = Callable[..., float | Sequence[float]]
MOST = 10_000
"""Parts of a list that are compared: more are data, and would be written out for every run."""


@dataclass(frozen=True)
class Identity:
    """An objective as it was before its first call."""

    objective: Objective
    source: str
    """A hash of its own source, or of its compiled code, and of what a partial binds to it; "" where it has none."""
    bound: Mapping[str, str]
    """A hash of each value that is bound to it, by name."""

    @classmethod
    def of(cls, objective: Objective) -> "Identity":
        return cls(objective, _source(objective), _bound(objective))

    def recorded(self) -> dict[str, Any]:
        """What a run that has just ended records of it. A value that has changed since is left out: the objective keeps
        its own state there, such as the calls it has had, which another call finds elsewhere."""
        now = _bound(self.objective)
        kept = {name: value for name, value in self.bound.items() if now.get(name) == value}
        return {"source": self.source, "bound": kept}

    def changed(self, recorded: Mapping[str, Any]) -> bool:
        """True where a run was trained by another source."""
        then = str(recorded.get("source", ""))
        alike = then.rpartition(" ")[0] == self.source.rpartition(" ")[0]  # both of source, or of one Python's code
        return bool(self.source and then) and alike and then != self.source

    def rebound(self, recorded: Mapping[str, Any]) -> list[str]:
        """The names of values that were others for a run. Runs of earlier versions record none."""
        return [name for name, then in recorded.get("bound", {}).items() if self.bound.get(name) != then]


def warn_of_change(now: Identity, name: str, store: Store) -> None:
    """A warning where runs of an objective's name were trained by another source of it, or with other values."""
    origins = [store.provenance(run.id) for run in store.runs() if run.config.get("objective") == name]
    changed = sum(now.changed(origin) or bool(now.rebound(origin)) for origin in origins)
    if changed:
        others = dict.fromkeys(value for origin in origins for value in now.rebound(origin))
        which = f" ({', '.join(others)})" if others else ""
        warnings.warn(
            f"{changed} of the {len(origins)} runs of {name!r} in {store.path} were trained by another source of the "
            f"objective, or with other values bound to it{which}, and are taken as they are: to train them anew, give "
            "another name= or store=",
            stacklevel=3,
        )


def _source(objective: Objective) -> str:
    """A hash of the objective's own source, and of the plain values that a partial binds to it. Where the source is in
    no file, as of `python - <<E`, of its code behind the name of this Python, whose code it is; "" where it has none.
    What it calls is not in it."""
    bound = ""
    while isinstance(objective, partial):
        values = {**{str(place): value for place, value in enumerate(objective.args)}, **objective.keywords}
        bound += "".join(f"\n{name}={value!r}" for name, value in values.items() if _is_plain(value))
        objective = objective.func
    if text := _text_in_file(objective):
        return _hash(text + bound)
    code = getattr(_function(objective), "__code__", None)
    return f"{sys.implementation.cache_tag} {_hash(_code_text(code) + bound)}" if code else ""


def _text_in_file(objective: Objective) -> str:
    try:
        return inspect.getsource(objective if inspect.isroutine(objective) else type(objective))
    except (OSError, TypeError):
        return ""


def _code_text(code: CodeType) -> str:
    """What a function's code does, without where it stands."""
    constants = [value for part in _codes(code) for value in part.co_consts if not isinstance(value, CodeType)]
    texts = [repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value) for value in constants]
    return repr([(part.co_code, part.co_names, part.co_varnames) for part in _codes(code)]) + repr(texts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_plain(value: Any) -> bool:
    """True for what is written alike in every process: an object may be written by its place in memory."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | None)


def _bound(objective: Any, within: tuple[Any, ...] = ()) -> dict[str, str]:
    """A hash of each value bound to an objective that is written alike in every process, by name."""
    texts = {name: _text(value, (*within, objective)) for name, value in _values(objective).items()}
    return {name: _hash(text) for name, text in texts.items() if text}


def _text(value: Any, within: tuple[Any, ...]) -> str:
    """A value as it is written in every process, a function by its source and what is bound to it; "" where there is no
    such text, as for an object, or for what lies `within` itself."""
    if any(value is one for one in within):
        return ""
    if isinstance(value, FunctionType):
        # Not by its code, which another Python compiles otherwise.
        return f"{_source(value) if _text_in_file(value) else ''} {_bound(value, within)}"
    if isinstance(value, list | tuple | dict):
        held = tuple(value.items() if isinstance(value, dict) else value)  # a copy: other threads may be filling it
        if len(held) > MOST:
            return ""
        parts = [_text(part, (*within, value)) for part in held]
        return f"{type(value).__name__}({', '.join(parts)})" if all(parts) else ""
    if isinstance(value, str | int | float | None):
        return repr(value)
    return f"{type(value).__name__} {value}" if isinstance(value, Number | np.generic) else ""


def _values(objective: Any) -> dict[str, Any]:
    """What a partial binds to an objective, the attributes of its object, its defaults and what it reads around it."""
    values: dict[str, Any] = {}
    while isinstance(objective, partial):
        values = {**{f"argument {place}": value for place, value in enumerate(objective.args)}, **objective.keywords}
        objective = objective.func
    owner = getattr(objective, "__self__", None) if inspect.isroutine(objective) else objective
    function, attributes = _function(objective), {} if inspect.ismodule(owner) else _attributes(owner)
    own = {f"self.{name}": value for name, value in attributes.items() if not name.startswith("__")}
    return {**(_of_function(function) if isinstance(function, FunctionType) else {}), **own, **values}


def _function(objective: Any) -> Any:
    """The function that a call of an objective runs: of a method, or of an object that can be called."""
    if inspect.isroutine(objective):
        return getattr(objective, "__func__", objective)
    return inspect.getattr_static(type(objective), "__call__", None)


def _attributes(owner: Any) -> dict[str, Any]:
    """The attributes of an object: those of its classes that are no methods, its slots and its own. What it inherits
    from installed packages, such as torch's, is left out."""
    own = owner if isinstance(owner, type) else type(owner)
    kinds = [kind for kind in own.__mro__[::-1] if kind is own or not _is_installed(kind)]
    of_classes = {name: value for kind in kinds for name, value in vars(kind).items() if not callable(value)}
    slots = {name: value for name, value in of_classes.items() if inspect.ismemberdescriptor(value)}
    for name, slot in slots.items():
        with suppress(AttributeError, TypeError):  # not given a value yet, or asked of the class
            of_classes[name] = slot.__get__(owner)
    return {**of_classes, **getattr(owner, "__dict__", {})}


def _is_installed(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _of_function(function: FunctionType) -> dict[str, Any]:
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    values = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    values |= function.__kwdefaults__ or {}
    read = {one.argval for part in _codes(code) for one in dis.get_instructions(part) if one.opname == "LOAD_GLOBAL"}
    around = {name: function.__globals__[name] for name in sorted(read & {*function.__globals__})}
    # The module's functions are not compared, and its name and file are nobody's values.
    values |= {name: value for name, value in around.items() if not callable(value) and not name.startswith("__")}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not given a value yet
            values[name] = cell.cell_contents
    return values


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions, lambdas and comprehensions inside it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
