"""What the page's own program reads: every run in columns, and the maps with their curves."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dst_lab.cards import estimator, listed, metric, parts, title
from dst_lab.estimators import kinds, numbers_of, rules
from dst_lab.figures.heat_map import fence
from dst_lab.figures.sweeps import cells, diverged, held_text, optimum, rate, swept
from dst_lab.plans import FRESH
from dst_lab.records import Group, Row, Rows, setting_key, spread, together, uneven
from dst_lab.report.commands import run_command
from dst_lab.report.others import map_heading, map_seeds, mapped
from dst_lab.report.section import Page
from dst_lab.report.study import Study
from dst_lab.runs import Config
from dst_lab.store import run_id

POINTS = 100
"""The most points of a curve."""
SINGLE = 9
"""Digits that tell any two float32 numbers apart, as most metrics are: runs are sorted and exported by them."""
EXACT = 17
"""Digits that no double is rounded by."""


def payload(page: Page) -> dict[str, Any]:
    ids = {run: i for i, run in enumerate(page.rows.runs)}
    return {
        **_runs(page.rows),
        "claims": [[ids[run] for run in verdict.runs if run in ids] for verdict in page.verdicts],
        "maps": page.maps,
        "fresh": FRESH,
        "words": [
            *rules(),
            *(
                word
                for kind in kinds().values()
                for of in numbers_of(kind).values()
                for word in of.metadata.get("words", ())
            ),
        ],
    }


def maps(study: Study, rows: Rows, others: Sequence[Group]) -> list[dict[str, Any]]:
    """For each task of the study the sweep of its own estimator; for the others every sweep over two temperatures."""
    own = study.tasks if study.roles else ()
    shown = [_map(rows, task, study.roles[0], f"{title(task)}, {study.ours}", study) for task in own]
    for group in others:
        shown += [
            _map(group.rows, group.task, name, map_heading(group, name), None, map_seeds(group, name))
            for name in mapped(group)
        ]
    return [one for one in shown if one]


def _runs(rows: Rows) -> dict[str, Any]:
    """Columns, in the order of recording; what the runs of one setting share is kept once."""
    settings: dict[str, int] = {}
    shared: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {"id": [], "setting": [], "plan": [], "seed": [], "status": [], "best": []}
    names = list(rows.recipes.plans)
    plans = {run: i for i, name in reversed([*enumerate(names)]) for run in map(_id, rows.wanted(name))}
    metrics: dict[str, list[Any]] = {name: [] for name in _recorded(rows)}
    for row in rows.runs.values():
        key = setting_key(row.run.config)
        if key not in settings:
            settings[key] = len(settings)
            shared.append(_setting(row))
        run = row.run
        best = row.best("validation_loss") if row.has("validation_loss") else None
        plan = plans.get(run.id, len(names))
        cells = (run.id, settings[key], plan, run.seed, run.status, short(best, SINGLE))
        for name, value in zip(columns, cells, strict=True):
            columns[name].append(value)
        for name, values in metrics.items():
            values.append(short(row.last(name), SINGLE) if row.has(name) and row.values(name).ndim == 1 else None)
    kept = {name: values for name, values in metrics.items() if any(value is not None for value in values)}
    cards = {name: metric(name) for name in kept}
    return {
        "settings": shared, "runs": columns, "metrics": kept, "plans": [*names, "none"],
        "notes": {},
        "cards": {
            name: {"title": card.label, "factor": card.factor, "unit": "%" if card.unit == "share" else ""}
            for name, card in cards.items()
        },
    }  # fmt: skip


def _recorded(rows: Rows) -> list[str]:
    """The metrics that some run has and a page lists."""
    return listed({name for row in rows.runs.values() for name in row.history})


def _id(config: Config) -> str:
    return run_id(config.to_dict())


def _setting(row: Row) -> dict[str, Any]:
    config = row.run.config
    name = row.run.estimator
    return {
        "task": title(row.run.task),
        "estimator": estimator(name).label,
        "taus": [*row.taus],
        # For the search: the names of configs and commands, and the short one of the literature.
        "words": " ".join([row.run.task, name, name.replace("_", "-"), estimator(name).short]),
        "config": {key: value for key, value in row.run.fields.items() if key != "seed"},
        # The seed is put in its place by the page.
        "command": run_command({**config, "seed": 0}),
    }


def _map(rows: Rows, task: str, role: str, heading: str, study: Study | None, seeds: str = "") -> dict[str, Any] | None:
    sweep = swept(rows, task, role)
    names = parts(task, dict.fromkeys(name for row in sweep if row.done for name in row.curves))
    measures, lost = [], diverged(rows, task, role)
    for name in names:
        runs_at = cells(rows, task, role, name)
        if not runs_at:
            continue
        card = metric(name, task)
        shown = [_cell(at, runs_at.get(at, []), name, lost.get(at, 0)) for at in sorted({**runs_at, **lost})]
        near = fence([one["mean"] for one in shown if one["mean"] is not None], card.direction)
        measures.append(
            {
                "metric": name, "title": card.title, "axis": card.axis, "unit": card.when, "low": card.direction < 0,
                "good": card.direction != 0, "near": near, "cells": shown,
            }
        )  # fmt: skip
    if not measures:
        return None
    in_epochs = any("epochs" in row.run.config for row in sweep[:1])
    reported = study.reported.get(task) if study else None
    return {
        "task": heading, "measures": measures, "ours": optimum(rows, task, role),
        "searched": (task, role) in rows.searches,
        "reported": {"whose": study.reporter, "at": reported} if study and reported else None,
        "lr": rate(rows, task, role), "held": held_text(rows, task, role), "x": "epoch" if in_epochs else "step",
        "seeds": f"{seeds} " if seeds else "",
    }  # fmt: skip


def _cell(at: tuple[float, float], rows: list[Row], name: str, lost: int) -> dict[str, Any]:
    if not rows:
        none: dict[str, Any] = {"mean": None, "sd": None, "n": 0, "x": [], "y": [], "band": [], "uneven": False}
        return {"at": at, "diverged": lost, **none}
    factor = metric(name).factor
    values = factor * np.array([row.counted(name) for row in rows])
    x, curves = together(rows, name)
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    return {
        # What is written in digits is rounded once, by the page, as tables round it; a curve is only drawn.
        "at": at, "mean": short(values.mean(), EXACT), "sd": short(spread(values), EXACT), "n": len(rows),
        "diverged": lost,
        "x": [short(value) for value in x[kept]],
        "y": [short(value) for value in factor * curves.mean(0)[kept]],
        "band": [short(value, 3) for value in factor * spread(curves)[kept]],
        "uneven": uneven(rows, name),
    }  # fmt: skip


def short(value: Any, digits: int = 5) -> Any:
    """Rounded to a few digits; None where JSON has no number for it."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 2**53 else rounded
