"""Runs that nobody trained: single records, and those of a study, whose histories a function of the config gives."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dst_lab.records import Row, Rows
from dst_lab.report import Study
from dst_lab.runs import Config
from dst_lab.store import Record, Run, Series, Store, run_id

Values = Callable[[Config], Mapping[str, Sequence[float]] | None]
"""The metrics of a run over training; None where the run is not there."""
SOFT = {"name": "soft", "tau": 1.0}


def decoupled(tau_f: Any, tau_b: Any = 1.0) -> dict[str, Any]:
    return {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}


def record(
    losses: Any, estimator: Mapping[str, Any] = SOFT, *, status: str = "done", provenance: Any = None, **fields: Any
) -> Record:
    """A run with these validation losses, or with these metrics by their names; it was evaluated after every step."""
    config = {"task": "own", "estimator": dict(estimator), "seed": 0, "lr": 0.1, **fields}
    metrics = losses if isinstance(losses, Mapping) else {"validation_loss": losses}
    history = {}
    for name, values in metrics.items():
        array = np.atleast_1d(np.asarray(values))
        history[name] = Series(np.arange(1, 1 + len(array)), array)
    return Record(config=config, status=status, history=history, provenance=provenance or {})


def put(path: Path | str, *records: Record) -> Path:
    with Store.open(path, write=True) as store:
        store.put(records)
    return Path(path)


def rows_of(study: Study, values: Values, diverges: Callable[[Config], bool] = lambda _: False) -> Rows:
    """The study's rows at the paper's scale."""
    known: dict[Config, Row | None] = {}

    def find(config: Config) -> Row | None:
        if config not in known:
            metrics = values(config)
            known[config] = metrics and _row(config, metrics, "diverged" if diverges(config) else "done")
        return known[config]

    def lookup(config: Config) -> float | None:
        row = find(config)
        return row and (row.best("validation_loss") if row.done else float("inf"))

    return Rows(study.recipes, "paper", find, lookup)


def _row(config: Config, metrics: Mapping[str, Sequence[float]], status: str) -> Row:
    fields = config.to_dict()
    history = {
        name: Series(10 * np.arange(1, 1 + len(values)), np.array(values, np.float32))
        for name, values in metrics.items()
    }
    return Row(Run(id=run_id(fields), config=fields, status=status, detail={}, provenance_id=""), lambda: history)
