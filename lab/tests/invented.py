"""Runs of a study that nobody trained: every config has the history that a function of it gives."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from dst_lab.records import Row, Rows
from dst_lab.report import Study
from dst_lab.runs import Config
from dst_lab.store import Run, Series, run_id

Values = Callable[[Config], Mapping[str, Sequence[float]] | None]
"""The metrics of a run over training; None where the run is not there."""


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
