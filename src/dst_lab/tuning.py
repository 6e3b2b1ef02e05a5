"""The two temperatures of your own training function, tuned with the laboratory's plans and store."""

import hashlib
import inspect
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dst_lab.configs import Choice, Config
from dst_lab.configs.estimators import DEFAULT
from dst_lab.plans.plan import Grid, Plan, score, settings, value_of
from dst_lab.plans.sequential import Sequential
from dst_lab.records import Reader, pursue
from dst_lab.store import Record, Series, Store, StoreError

Objective = Callable[..., float | Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class OwnConfig(Config):
    """A run of somebody's own objective: it is known by the objective's name, the temperatures and the seed."""

    task: ClassVar[str] = "own"
    objective: str = field(default="")
    lr: float = 1.0
    dataset: str = ""
    batch: int = 1


@dataclass(frozen=True)
class Tuned:
    """What came out."""

    tau_f: float
    tau_b: float
    loss: float
    """Mean over seeds of each run's lowest loss."""
    table: tuple[tuple[float, float, float], ...]
    """(tau_f, tau_b, loss) of every setting tried, best first."""
    notes: tuple[str, ...]


def tune(
    objective: Objective,
    *,
    tau_f: Sequence[float],
    tau_b: Sequence[float],
    plan: str = "sequential",
    seeds: int = 3,
    start_tau_b: float = 1.0,
    store: str | Path = "tune.sqlite",
    name: str | None = None,
) -> Tuned:
    """Find temperatures for your own network. Killed and called again, it goes on; finished, it trains nothing.

    Args:
        objective: called as `objective(tau_f=.., tau_b=.., seed=..)`; returns a validation loss, or one per epoch. Any
            code will do. A loss that is not finite counts as diverged.
        tau_f, tau_b: the values to try.
        plan: "sequential" (tau_f at `start_tau_b`, then tau_b: about len(tau_f) + len(tau_b) settings) or "grid".
        seeds: how many runs per setting.
        start_tau_b: where tau_f is swept.
        store: file to record in; `dst show --store FILE` prints it.
        name: what the objective is called in the store (its own name). Runs are known by it: change it, or the store,
            when you change the objective. Where the objective's own source has changed, a warning says so.

    Example:
        >>> import tempfile, pathlib
        >>> def objective(tau_f, tau_b, seed):                        # stands for a training run
        ...     return (tau_f - 0.5) ** 2 + (tau_b - 2.0) ** 2 + 0.001 * seed
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "tune.sqlite"
        ...     result = tune(objective, tau_f=[0, 0.5, 1, 2], tau_b=[0.5, 1, 2, 4], store=file)
        >>> result.tau_f, result.tau_b
        (0.5, 2.0)
    """
    name = name or str(getattr(objective, "__qualname__", "objective"))
    base = OwnConfig(estimator=Choice.make(DEFAULT, tau_f=tau_f[0], tau_b=start_tau_b), objective=name)
    runs = tuple(range(seeds))
    f_axis, b_axis = ("tau_f", tuple(map(float, tau_f))), ("tau_b", tuple(map(float, tau_b)))
    search: Plan
    if plan == "sequential":
        search = Sequential(base, f_axis, b_axis, runs)
    elif plan == "grid":
        search = Grid(base, (f_axis, b_axis), runs)
    else:
        raise ValueError(f'plan must be "sequential" or "grid", got {plan!r}')
    with Store.open(Path(store), write=True) as records:
        source = _source(objective)  # once: a file that is edited meanwhile is not what runs
        _warn_of_change(source, name, records)
        pursue(search, records, lambda configs: _train(objective, source, configs, records))
        lookup = Reader(records).scores()
        tried = list(dict.fromkeys(settings_of(search.wanted(lookup))))
        losses = {config: value for config in tried if (value := score(config, runs, lookup)) is not None}
        (found,) = search.chosen(lookup)
        if losses[found] == math.inf:
            raise ValueError(
                f"every setting of {name!r} has a run whose loss is not finite, so none can be chosen. These runs are "
                "recorded: once the objective is mended, give another name= or store="
            )
        table = tuple((*_pair(config), loss) for config, loss in sorted(losses.items(), key=lambda item: item[1]))
        return Tuned(*_pair(found), losses[found], table, tuple(search.notes(lookup)))


def settings_of(configs: Sequence[Config]) -> list[Config]:
    """The settings behind runs of several seeds."""
    return [settings(config, [("seed", (0,))])[0] for config in configs]


def _pair(config: Config) -> tuple[float, float]:
    return float(value_of(config, "tau_f")), float(value_of(config, "tau_b"))


def _train(objective: Objective, source: str, configs: Sequence[Config], store: Store) -> bool:
    """One run after the other, each recorded as it ends. An objective that raises ends the search; nothing is lost."""
    for config in configs:
        tau_f, tau_b = _pair(config)
        started = time.time()
        losses = _losses(objective(tau_f=tau_f, tau_b=tau_b, seed=config.seed))
        finite = np.isfinite(losses)
        status, detail = "done", {}
        if not finite.all():
            bad = int(np.argmin(finite))
            status, detail = "diverged", {"step": bad + 1, "reason": "the loss is not finite"}
            losses = losses[:bad]
        history = {"validation_loss": Series(np.arange(1, len(losses) + 1), losses)} if losses.size else {}
        provenance: dict[str, Any] = {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))}
        provenance["source"] = source
        provenance["seconds"] = round(time.time() - started, 3)
        store.put(
            [Record(config=config.to_dict(), status=status, detail=detail, history=history, provenance=provenance)]
        )
    return True


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
    losses = np.atleast_1d(np.asarray(numbers if many else numbers[0], np.float64))
    if losses.ndim != 1 or not losses.size:
        raise StoreError(f"the objective must return a loss or one per epoch, got shape {losses.shape}")
    return losses


def _source(objective: Objective) -> str:
    """A hash of the objective's own source, "" where there is none to be had. What it calls is not in it."""
    while isinstance(objective, partial):
        objective = objective.func
    try:
        text = inspect.getsource(objective if inspect.isroutine(objective) else type(objective))
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _warn_of_change(now: str, name: str, store: Store) -> None:
    runs = [run for run in store.runs() if run.config.get("objective") == name]
    before = [str(store.provenance(run.id).get("source", "")) for run in runs]
    changed = sum(bool(now and then) and then != now for then in before)
    if changed:
        warnings.warn(
            f"{changed} of the {len(runs)} runs of {name!r} in {store.path} were trained by another source of the "
            "objective, and are taken as they are: to train them anew, give another name= or store=",
            stacklevel=3,
        )
