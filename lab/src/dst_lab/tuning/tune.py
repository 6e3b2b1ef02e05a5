"""The temperatures of your own training function, and whatever else it takes, tuned with the laboratory's plans."""

import hashlib
import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.status import Status
from rich.text import Text

from dst_lab.estimators import (
    DEFAULT,
    USUAL,
    Choice,
    Kind,
    default_of,
    kind_of,
    kinds,
    names_of_numbers,
    numbers_of,
    options_of,
)
from dst_lab.plans.adaptive import Adaptive
from dst_lab.plans.plan import Grid, Plan, Sequential, is_number, score, value_of, with_value
from dst_lab.records import Reader, remaining
from dst_lab.runs import Config
from dst_lab.store import Record, Series, Store, StoreError
from dst_lab.tuning.own import OwnConfig, key_of
from dst_lab.tuning.workers import Calls, at_once

Objective = Callable[..., float | Sequence[float]]
_TAKEN = ("seed", "task", "objective", "estimator", "parameters", "name", "version")


@dataclass(frozen=True)
class Tuned:
    """What came out. Each parameter is an attribute too, unless it has the name of one below: `result.tau_f`."""

    values: Mapping[str, Any]
    """The best value of each parameter."""
    loss: float
    """Mean over seeds of each run's lowest loss."""
    table: tuple[tuple[Any, ...], ...]
    """(tau_f, tau_b, .., loss) of every setting tried, best first; the parameters in the order of `values`."""
    notes: tuple[str, ...]
    """How it went, and which of the values lie on the edge of what was tried."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.values:
            raise AttributeError(f"no parameter {name!r} was tuned")
        return self.values[name]


def tune(
    objective: Objective,
    *,
    plan: str = "sequential",
    seeds: int = 3,
    start: Mapping[str, Any] | None = None,
    settings: int = 40,
    workers: int | Executor = 1,
    store: str | Path = "tune.sqlite",
    name: str | None = None,
    version: str = "",
    estimator: str = DEFAULT,
    **parameters: Sequence[Any],
) -> Tuned:
    """Find temperatures, and other parameters, for your own network. Killed and called again, it goes on; finished, it
    trains nothing. On a terminal a line shows how far it is.

    Args:
        objective: called as `objective(tau_f=.., tau_b=.., seed=..)`, with every parameter by its name; returns a
            validation loss, or one per epoch. Any code will do. A loss that is not finite counts as diverged.
        plan: "sequential" (one parameter after the other, in the order given, the others at their best so far or at
            their start: about as many settings as there are values), "grid" (every combination) or "adaptive" (Optuna
            proposes, eight settings at a time).
        seeds: how many runs per setting.
        start: where a parameter stands before it is swept; a temperature at 1, another at its first value. A
            parameter that is not swept is passed to the objective with this value. Parameters in neither list are not
            passed, temperatures included: the objective's own defaults hold, and are not recorded.
        settings: how many settings an adaptive search tries.
        workers: how many runs at a time, in processes of their own; the objective is then a function that can be
            imported. Or an executor of yours (`concurrent.futures`): threads, a cluster.
        store: file to record in; `dst show --store FILE` prints it.
        name: what the objective is called in the store (its own name). Runs are known by it and by `version`.
        version: a text that you change when you change what the objective computes, such as "2": runs of another
            version are not reused. Without one, a warning says where recorded runs are from another state of the file
            that the objective is in, and they count.
        estimator: whose temperatures are tuned; runs are recorded under its name.
        parameters: the values to try, such as `tau_f=[0, 0.5, 1]`, `lr=[1e-3, 3e-3]`; a list among them, as in
            `widths=[[64], [64, 32]]`, is passed as a tuple. An adaptive search takes ranges,
            `tau_f=(0.05, 3)`, as well as lists of values; a range with whole ends, `layers=(2, 64)`, is one of whole
            numbers (any numbers: `scale=(2.0, 64.0)`), but for temperatures and `lr`. A sweep of a temperature whose
            best lies on its edge is extended.

    Example:
        >>> import tempfile, pathlib
        >>> def objective(tau_f, tau_b, lr, seed):                    # stands for a training run
        ...     return (tau_f - 0.5) ** 2 + (tau_b - 2.0) ** 2 + abs(lr - 0.01) + 0.001 * seed
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "tune.sqlite"
        ...     result = tune(objective, tau_f=[0, 0.5, 1, 2], tau_b=[0.5, 1, 2, 4], lr=[0.003, 0.01, 0.03], store=file)
        >>> result.tau_f, result.tau_b, result.lr
        (0.5, 2.0, 0.01)
    """
    name = name or str(getattr(objective, "__qualname__", "objective"))
    if not isinstance(name, str):
        raise ValueError(f"name is what the objective is called in the store, a text, got {name!r}")
    if not isinstance(seeds, int) or seeds < 1:
        raise ValueError(f"seeds is how many runs each setting has, at least 1, got {seeds!r}")
    of, start = kind_of(estimator), {key: _plain(key, value) for key, value in (start or {}).items()}
    axes = {key: _values(key, values, of) for key, values in parameters.items()}
    for key, value in start.items():  # as it is written among the values to try: 1.0 for 1, so that both are one run
        start[key] = next((one for one in axes.get(key, ()) if key_of(one) == key_of(value)), value)
    search = _search(plan, _base(name, version, of, start, axes), axes, seeds, settings)
    names = list(dict.fromkeys([*axes, *start]))
    with Store.open(Path(store), write=True) as records, Console(stderr=True).status(Text(name)) as status:
        file = "" if version else _file_mark(objective)  # once: a file that is edited meanwhile is not what runs
        _warn_of_change(file, name, records)
        with at_once(workers, objective) as call:
            _follow(search, records, call, file, names, status)
        return _tuned(search, Reader(records), list(axes), seeds, name)


def _file_mark(objective: Objective) -> str:
    """A hash of the file that the objective is written in; "" without one, as in a notebook."""
    function: Any = objective
    while isinstance(function, partial):
        function = function.func
    try:
        file = inspect.getsourcefile(function if inspect.isroutine(function) else type(function))
        return hashlib.sha256(Path(file or "").read_bytes()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""


def _warn_of_change(file: str, name: str, store: Store) -> None:
    """Warn where runs of an objective's name, without a version, are from another state of its file."""
    runs = [run for run in store.runs() if run.config.get("objective") == name and "version" not in run.config]
    # Runs of earlier releases have no such mark, and count as of this one.
    changed = sum(store.provenance(run.id).get("file", file) != file for run in runs) if file else 0
    if changed:
        warnings.warn(
            f"{changed} of the {len(runs)} runs of {name!r} in {store.path} are from another state of its file, and "
            'are taken as they are: where what it computes has changed, give version="2", another name= or store=',
            stacklevel=3,
        )


def _search(
    plan: str, base: OwnConfig, axes: Mapping[str, Sequence[Any]], seeds: int, settings: int
) -> Sequential | Grid | Adaptive:
    runs = tuple(range(seeds))
    if plan == "adaptive":
        ranges = {name: ends for name, ends in axes.items() if isinstance(ends, tuple)}
        if bad := [name for name, ends in ranges.items() if len(ends) != 2 or not all(map(is_number, ends))]:
            raise ValueError(f"a range is (lowest, highest), and values to choose among are a list; got {bad[0]}")
        choices = tuple((name, tuple(values)) for name, values in axes.items() if name not in ranges)
        ends = tuple((name, low, high) for name, (low, high) in ranges.items())
        return Adaptive(base, ends, runs, settings, choices=choices)
    values = tuple((name, tuple(values)) for name, values in axes.items())
    if plan == "sequential":
        return Sequential(base, values, runs)
    if plan == "grid":
        return Grid(base, values, runs)
    raise ValueError(f'plan must be "sequential", "grid" or "adaptive", got {plan!r}')


def _values(name: str, values: Sequence[Any], of: Kind) -> list[Any] | tuple[Any, ...]:
    """The values in the type that they are recorded in, so that equal runs are known by the same name; a tuple stays
    one, since it may be a range."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{name} takes a list of values to try, got {values!r}")
    plain = [_plain(name, value) for value in values]
    if not plain:
        raise ValueError(f"{name} takes a list of values to try, got none")
    if name in of.temperatures():
        plain = [float(value) if isinstance(value, int) else value for value in plain]
    return tuple(plain) if isinstance(values, tuple) else list({key_of(value): value for value in plain}.values())


def _plain(name: str, value: Any) -> Any:
    """A parameter's value as it is recorded and passed: a number of NumPy or torch as one of Python, a list as a
    tuple."""
    value = value.item() if hasattr(value, "item") else value
    value = tuple(_plain(name, part) for part in value) if isinstance(value, list | tuple) else value
    if not isinstance(value, str | int | float | tuple | None):
        raise ValueError(f"{name} takes numbers, texts, booleans, None and lists of them, got {value!r}")
    return value


def _base(
    name: str, version: str, of: Kind, start: Mapping[str, Any], parameters: Mapping[str, Sequence[Any]]
) -> OwnConfig:
    """The config that the search starts from."""
    if not parameters:
        raise ValueError(
            f"what is to be tuned? Give values to try, such as {' '.join(f'{t}=[0.5, 1]' for t in of.temperatures())}"
        )
    taken = [key for key in (*parameters, *start) if key in _TAKEN]
    if taken:
        raise ValueError(f"a parameter cannot be called {taken[0]}: give it another name")
    foreign = [key for key in parameters if key in names_of_numbers() and key not in numbers_of(of)]
    if foreign:
        takers = [name for name in (*USUAL, *kinds()) if foreign[0] in numbers_of(kind_of(name))]
        raise ValueError(
            f"{of.name} takes {' and '.join(of.temperatures()) or 'no temperature'}, got {', '.join(foreign)}: name an "
            f'estimator that takes it, such as estimator="{takers[0]}"'
        )
    first = {key: values[0] for key, values in parameters.items()}
    taus = {key: start.get(key, default_of(numbers_of(of)[key])) for key in of.temperatures()}
    taus |= {key: first[key] for key in list(first)[:1] if key in taus}  # the first to be swept
    options = {key: start.get(key, first.get(key, default_of(spec))) for key, spec in options_of(of).items()}
    absent = {*taus, *options} - {*parameters, *start}
    config = OwnConfig(
        estimator=Choice.make(of.name, **taus, **options), objective=name, version=version, absent=frozenset(absent)
    )
    for key in dict.fromkeys([*parameters, *start]):
        if key not in taus and key not in options:
            config = config.with_value(key, start.get(key, first.get(key)))
    for key, values in parameters.items():
        for value in values:
            with_value(config, key, value)  # a sentence, before there is a store
    return config


def _tuned(search: Plan, reader: Reader, names: Sequence[str], seeds: int, name: str) -> Tuned:
    lookup, runs = reader.scores(), tuple(range(seeds))
    tried = dict.fromkeys(replace(config, seed=0) for config in search.wanted(lookup))
    losses = {config: value for config in tried if (value := score(config, runs, lookup)) is not None}
    (best,) = search.chosen(lookup)
    if losses[best] == math.inf:
        raise ValueError(
            f"every setting of {name!r} has a run whose loss is not finite, so none can be chosen. These runs are "
            "recorded: once the objective is mended, give another name= or store="
        )
    table = tuple(
        (*(value_of(config, key) for key in names), loss)
        for config, loss in sorted(losses.items(), key=lambda item: item[1])
    )
    return Tuned({key: value_of(best, key) for key in names}, losses[best], table, tuple(search.notes(lookup)))


def _follow(search: Plan, store: Store, call: Calls, file: str, names: Sequence[str], status: Status) -> None:
    """Train what the search wants, round after round, and record each run as it ends; the status line says how far it
    is. An objective that raises ends the search; nothing is lost."""
    best = math.inf, ""
    while (asked := remaining(search, store))[0]:
        configs, wanted = asked
        given = [{**{key: value_of(config, key) for key in names}, "seed": config.seed} for config in configs]
        for done, (place, returned, started, seconds) in enumerate(call(given), len(wanted) - len(configs) + 1):
            losses = _losses(returned)
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
            provenance = {"started": at, "file": file, "seconds": round(seconds, 3)}
            store.put([_record(configs[place], losses, provenance)])
            if np.isfinite(losses).all():
                text = " ".join(f"{name}={value}" for name, value in given[place].items())
                best = min(best, (float(losses.min()), text))
            line = f"{done:,} of {len(wanted):,} runs, lowest loss {best[0]:.4g} at {best[1]}"
            status.update(Text(line, overflow="ellipsis", no_wrap=True))


def _record(config: Config, losses: npt.NDArray[np.float64], provenance: dict[str, Any]) -> Record:
    finite = np.isfinite(losses)
    status, detail = "done", {}
    if not finite.all():
        bad = int(np.argmin(finite))
        status, detail = "diverged", {"step": bad + 1, "reason": "the loss is not finite"}
        losses = losses[:bad]
    history = {"validation_loss": Series(np.arange(1, len(losses) + 1), losses)} if losses.size else {}
    return Record(config=config.to_dict(), status=status, detail=detail, history=history, provenance=provenance)


def _losses(returned: Any) -> npt.NDArray[np.float64]:
    """What an objective returned, one number per epoch."""
    many = isinstance(returned, list | tuple)
    numbers = [
        # A tensor may lie on a GPU, want a gradient and be of a dtype that NumPy does not know.
        one.detach().cpu().double().numpy() if hasattr(one, "detach") else one
        for one in (returned if many else [returned])
    ]
    if any(one is None for one in numbers):  # NumPy would take it for a NaN
        raise TypeError("the objective must return a validation loss, or one per epoch, got None")
    try:
        losses = np.atleast_1d(np.asarray(numbers if many else numbers[0], np.float64))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"the objective must return a validation loss, or one per epoch, got {returned!r}") from None
    if losses.ndim != 1 or not losses.size:
        raise StoreError(f"the objective must return a loss or one per epoch, got shape {losses.shape}")
    return losses
