"""What the committed runs cost: time on the device by recipe, and what a plain script would have taken."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dst_lab.records import Row, Rows
from dst_lab.store import run_id
from studies.paper.recipes import RECIPES

PLAIN = {
    "stochastic-binary": "plain PyTorch, one run",
    "categorical-autoencoder": "plain PyTorch, one run",
    "logic-gates": "torchlogix gumbel_hard, compiled",
}
"""Task -> the row of benchmarks/results.csv that one step of a one-run-at-a-time script takes."""
OTHER = "other runs"
BEYOND = ("bias-variance", *RECIPES.optional, OTHER)
"""What goes beyond the paper."""


@dataclass
class Cost:
    """The runs that were trained for one recipe."""

    recipe: str
    runs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """The seconds of training; a chunk of runs counts once."""
    plain: float = 0.0
    """Seconds of a plain script: its time for a step, times the steps of every run."""
    compared: float = 0.0
    """The part of `seconds` that `plain` stands against."""
    unmeasured: int = 0
    """Runs of a task whose plain step was never measured; they are not in `plain`."""


@dataclass(frozen=True)
class Device:
    """Where most of the time was spent, and when."""

    name: str
    names: tuple[str, ...]
    first: str
    last: str


def device_of(rows: Rows) -> Device:
    seconds: dict[str, float] = {}
    days: list[str] = []
    for place, _ in chunks(rows).values():
        seconds[_device(place)] = seconds.get(_device(place), 0.0) + float(place.get("seconds", 0))
        days += [str(place[name])[:10] for name in ("started", "ended") if name in place]
    names = sorted(seconds, key=lambda name: -seconds[name])
    return Device(names[0], tuple(names), min(days), max(days))


def costs(rows: Rows, step_ms: Mapping[str, float]) -> list[Cost]:
    """By recipe, in their order. A chunk belongs to the first recipe that wants all of its runs: a run that two want
    is trained once, and counted where that was. Of a chunk that none wants all of, each run takes an equal share."""
    wanted = {name: {run_id(config.to_dict()) for config in rows.wanted(name)} for name in RECIPES.plans}
    found = {name: Cost(name) for name in (*RECIPES.plans, OTHER)}
    for place, members in chunks(rows).values():
        whole = next((name for name, runs in wanted.items() if {row.run.id for row in members} <= runs), None)
        seconds = float(place.get("seconds", 0)) / len(members)
        for row in members:
            cost = found[whole or next((name for name, runs in wanted.items() if row.run.id in runs), OTHER)]
            cost.runs += 1
            cost.ends[row.run.status] += 1
            cost.seconds += seconds
            if row.run.task in step_ms:
                cost.compared += seconds
                cost.plain += step_ms[row.run.task] / 1000 * steps(row)
            else:
                cost.unmeasured += 1
    return [cost for cost in found.values() if cost.runs]


def total(found: Sequence[Cost]) -> Cost:
    """All of them together."""
    whole = Cost("all")
    for one in found:
        whole.ends.update(one.ends)
        for name in ("runs", "seconds", "plain", "compared", "unmeasured"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
    return whole


def chunks(rows: Rows) -> dict[str, tuple[dict[str, Any], list[Row]]]:
    """The runs that were trained together, with what was noted of them."""
    found: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    for row in rows.runs.values():
        key = row.run.provenance_id
        if key not in found:
            found[key] = rows.store.provenance(row.run.id), []
        found[key][1].append(row)
    return found


def steps(row: Row) -> int:
    """How many steps a run was trained: to its last evaluation, or to where it broke."""
    if row.run.status in ("diverged", "failed", "stopped"):
        return int(row.run.detail.get("step", 0))
    return max(int(series.steps[-1]) for series in row.history.values())


def plain_steps(results: Path, device: str) -> dict[str, float]:
    """Milliseconds of a plain step by task, as last measured on this device."""
    with open(results, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    return {
        row["benchmark"]: float(row["p50_ms"])
        for row in table
        if PLAIN.get(row["benchmark"]) == row["what"] and row["device"] == device
    }


def held(sessions: Path) -> tuple[float, int] | None:
    """Seconds for which the device was in use, and in how many sessions, where that was written down."""
    if not sessions.exists():
        return None
    with open(sessions, newline="", encoding="utf-8") as file:
        seconds = [float(row["wall_s"]) for row in csv.DictReader(file)]
    return sum(seconds), len(seconds)


def _device(place: Mapping[str, Any]) -> str:
    return str(place.get("device_name") or f"{place.get('cores', 'unknown')} CPU cores")
