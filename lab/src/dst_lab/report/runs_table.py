"""What the page's table of runs reads: its columns, one row per run, and what the runs of a setting share."""

import math
from collections.abc import Mapping
from typing import Any

from dst_lab.cards import estimator, listed, metric, title
from dst_lab.plans.plan import is_number
from dst_lab.records import Row, setting_key
from dst_lab.report.commands import run_command
from dst_lab.report.study import Page
from dst_lab.store import run_id

DIGITS = 9
"""Digits that tell any two float32 numbers apart, as most metrics are."""
USUAL = ("validation_accuracy", "test_loss", "test_accuracy")
"""The metrics that say most have a column each where they are recorded; at most as many have one."""


def payload(page: Page) -> dict[str, Any]:
    rows = page.rows
    names = listed({name for row in rows.runs.values() for name in row.history})
    metrics = {
        name: [short(row.last(name)) if row.is_number(name) else None for row in rows.runs.values()] for name in names
    }
    metrics = {name: values for name, values in metrics.items() if any(value is not None for value in values)}
    shown = _shown(metrics)
    columns = _columns(list(shown))
    plans = {run_id(c.to_dict()): name for name in reversed([*rows.recipes.plans]) for c in rows.wanted(name)}
    settings: dict[str, int] = {}
    shared: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for place, row in enumerate(rows.runs.values()):
        key = setting_key(row.run.config)
        if key not in settings:
            settings[key] = len(settings)
            shared.append(_setting(row))
        run, (tau_f, tau_b, _) = row.run, row.taus
        best = short(row.best("validation_loss")) if row.has("validation_loss") else None
        plan = plans.get(run.id)
        cells = [title(run.task), estimator(run.estimator).label, tau_f, tau_b, run.fields.get("lr"), run.seed, plan]
        cells += [run.status, best, *(values[place] for values in shown.values())]
        runs.append(
            {"id": run.id, "setting": settings[key], "seed": run.seed, "status": run.status, "plan": plan or "none",
             "cells": cells}
        )  # fmt: skip
    kept = [c for c in range(len(columns)) if any(one["cells"][c] is not None for one in runs)]
    for one in runs:
        one["cells"] = [one["cells"][c] for c in kept]
    places = {run: i for i, run in enumerate(rows.runs)}
    return {
        "columns": [columns[c] for c in kept], "runs": runs, "settings": shared, "metrics": metrics,
        "claims": [[places[run] for run in dict.fromkeys(verdict.runs) if run in places] for verdict in page.verdicts],
    }  # fmt: skip


def _columns(names: list[str]) -> list[dict[str, Any]]:
    """Title, style and digits; 0 where a value is shown as it was given."""
    given = [("Task", "less"), ("Estimator", ""), ("τf", "num"), ("τb", "num"), ("lr", "num less"), ("Seed", "num")]
    given += [("Plan", "less"), ("Status", "less")]
    measured = [("Lowest val. loss", "num"), *((f"Last {metric(name).axis}", "num less") for name in names)]
    return [
        {"title": title, "style": style, "digits": digits}
        for digits, columns in ((0, given), (5, measured))
        for title, style in columns
    ]


def _shown(metrics: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The metrics with a column, in the unit of their axis."""
    others = [
        name
        for name in metrics
        if name.startswith(("test_", "validation_")) and not name.endswith("_argmax") and name != "validation_loss"
    ]
    names = [*filter(metrics.__contains__, USUAL), *(name for name in others if name not in USUAL)][: len(USUAL)]
    return {
        name: [value if value is None else short(metric(name).factor * value) for value in metrics[name]]
        for name in names
    }


def _setting(row: Row) -> dict[str, Any]:
    """What the runs of one setting share: its fields, the words by which it is found, and its command."""
    config = row.run.config
    others = {name: value for name, value in row.run.fields.items() if name not in ("task", "estimator", "seed")}
    numbers = {name: value for name, value in config["estimator"].items() if name != "name"}
    facts = {"task": config["task"], "estimator": row.run.estimator, **_flat(numbers), **_flat(others)}
    words = [*(f"{name}={value}" for name, value in facts.items()), estimator(row.run.estimator).short]
    # The seed is put in its place by the page.
    return {"facts": facts, "words": " ".join(words), "command": run_command({**config, "seed": 0})}


def _flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Fields by their dotted names, as text but for numbers."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = value if is_number(value) and math.isfinite(value) else str(value)
    return flat


def short(value: Any) -> Any:
    """Rounded to a few digits; None where JSON has no number for it."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 2**53 else rounded
