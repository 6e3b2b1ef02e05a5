"""What the page's own program reads: every run in columns, and the maps with their curves."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dst_lab.claims import Verdict
from dst_lab.configs import Config
from dst_lab.figures.rows import Row, Rows, setting_key, spread, together
from dst_lab.figures.style import LOOKS, TASKS
from dst_lab.report.commands import run_command
from dst_lab.store import run_id
from dst_lab.studies.paper.figures.maps import PAPER_OPTIMA, RECIPE, cells, diverged, optimum, rate, swept
from dst_lab.studies.paper.recipes import RECIPES

METRICS = (
    "validation_loss", "validation_accuracy", "validation_loss_argmax", "validation_accuracy_argmax", "test_loss",
    "test_accuracy", "test_loss_argmax", "test_accuracy_argmax", "train_loss", "gradient_norm", "inactive",
    "perplexity", "snr", "gate_perplexity", "unused_gates", "dead_gates",
)  # fmt: skip
MEASURES = {
    "stochastic-binary": ("validation_loss", "validation_accuracy", "inactive"),
    "categorical-autoencoder": ("validation_loss", "perplexity"),
    "logic-gates": ("validation_loss", "validation_accuracy", "gate_perplexity"),
}
SAID = {
    "validation_loss": ("Validation loss", "lowest over training, nats", 1.0),
    "validation_accuracy": ("Validation accuracy", "highest over training, %", 100.0),
    "inactive": ("Inactive neurons", "at the end, %", 100.0),
    "perplexity": ("Code perplexity", "at the end", 1.0),
    "gate_perplexity": ("Gate perplexity", "at the end", 1.0),
}
SHORT = {"gumbel_ste": "ST-GS"}
POINTS = 100
"""At most, of a curve."""


def payload(rows: Rows, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    ids = {run: i for i, run in enumerate(rows.runs)}
    return {
        **_runs(rows),
        "claims": [[ids[run] for run in verdict.runs if run in ids] for verdict in verdicts],
        "maps": [found for task in RECIPE if (found := _map(rows, task))],
    }


def _runs(rows: Rows) -> dict[str, Any]:
    """Columns, in the order of recording; what the runs of one setting share is kept once."""
    settings: dict[str, int] = {}
    shared: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {"id": [], "setting": [], "plan": [], "seed": [], "status": [], "best": []}
    plans = {run: i for i, name in reversed([*enumerate(RECIPES)]) for run in map(_id, rows.wanted(name))}
    metrics: dict[str, list[Any]] = {metric: [] for metric in METRICS}
    for row in rows.runs.values():
        key = setting_key(row.run.config)
        if key not in settings:
            settings[key] = len(settings)
            shared.append(_setting(row))
        run = row.run
        best = row.best("validation_loss") if row.has("validation_loss") else None
        plan = plans.get(run.id, len(RECIPES))
        for name, value in zip(columns, (run.id, settings[key], plan, run.seed, run.status, short(best)), strict=True):
            columns[name].append(value)
        for metric, values in metrics.items():
            values.append(short(row.last(metric)) if row.has(metric) and row.values(metric).ndim == 1 else None)
    kept = {metric: values for metric, values in metrics.items() if any(value is not None for value in values)}
    return {"settings": shared, "runs": columns, "metrics": kept, "plans": [*RECIPES, "none"]}


def _id(config: Config) -> str:
    return run_id(config.to_dict())


def _setting(row: Row) -> dict[str, Any]:
    config = row.run.config
    name = row.run.estimator
    given = {key: value for key, value in config.items() if key not in ("task", "estimator", "seed")}
    taus = config["estimator"]
    return {
        "task": TASKS.get(row.run.task, row.run.task),
        "estimator": LOOKS[name].label if name in LOOKS else name,
        "taus": [*row.taus],
        "tau": taus.get("tau"),
        # For the search: the names of configs and commands, and the short one of the literature.
        "words": " ".join([row.run.task, name, name.replace("_", "-"), SHORT.get(name, "")]),
        "lr": config.get("lr"),
        "config": given,
        # The seed is put in its place by the page.
        "command": run_command({**config, "seed": 0}),
    }


def _map(rows: Rows, task: str) -> dict[str, Any] | None:
    measures, lost = [], diverged(rows, task)
    for metric in MEASURES[task]:
        found = cells(rows, task, metric)
        if not found:
            continue
        title, unit, factor = SAID[metric]
        measures.append(
            {
                "metric": metric, "title": title, "unit": unit, "low": metric in ("validation_loss", "inactive"),
                "cells": [
                    _cell(at, found.get(at, []), metric, factor, lost.get(at, 0)) for at in sorted({**found, **lost})
                ],
            }
        )  # fmt: skip
    if not measures:
        return None
    in_epochs = any("epochs" in row.run.config for row in swept(rows, task)[:1])
    return {
        "task": TASKS[task], "measures": measures, "ours": optimum(rows, task), "paper": PAPER_OPTIMA[task],
        "lr": rate(rows, task),
        "x": "epoch" if in_epochs else "step",
    }  # fmt: skip


def _cell(at: tuple[float, float], rows: list[Row], metric: str, factor: float, lost: int) -> dict[str, Any]:
    if not rows:
        return {"at": at, "mean": None, "sd": None, "n": 0, "diverged": lost, "x": [], "y": [], "band": []}
    # The highest perplexity says little: that of untrained gates, or of codes that then collapsed.
    best = metric.startswith("validation")
    values = factor * np.array([row.best(metric) if best else row.last(metric) for row in rows])
    x, curves = together(rows, metric)
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    return {
        "at": at, "mean": short(values.mean()), "sd": short(spread(values)), "n": len(rows), "diverged": lost,
        "x": [short(value) for value in x[kept]],
        "y": [short(value) for value in factor * curves.mean(0)[kept]],
        "band": [short(value, 3) for value in factor * spread(curves)[kept]],
    }  # fmt: skip


def short(value: Any, digits: int = 5) -> Any:
    """Rounded to a few digits; None where JSON has no number for it."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 2**53 else rounded
