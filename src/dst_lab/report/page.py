"""One self-contained page from a store: verdicts, figures, settings, runs, provenance."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from dst_lab.claims import Rows as ClaimRows
from dst_lab.configs import WHOLE
from dst_lab.figures import Drawn, Rows
from dst_lab.figures.style import LOOKS, TASKS, plus_minus
from dst_lab.report.commands import scale_of
from dst_lab.report.data import payload
from dst_lab.report.inline import embedded, inline
from dst_lab.report.verdicts import BOTH, MARKS, board, groups, shown, tally
from dst_lab.store import Run, Store, run_id
from dst_lab.studies.paper import claims
from dst_lab.studies.paper.figures.maps import PAPER_OPTIMA
from dst_lab.studies.paper.readings import ask
from dst_lab.studies.paper.recipes import RECIPES

HERE = Path(__file__).parent
SECTIONS = {
    "Binary network": ("network-curves", "inactive"),
    "Autoencoder": ("autoencoder-curves", "reconstructions", "autoencoder-search"),
    "Logic gates": ("logic-curves", "gates", "logic-search"),
    "What each temperature does": ("tau-f-effects", "tau-b-effects", "bias-variance"),
}
DATASETS = {"digits": "scikit-learn's digits", "mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR-10"}
OPTIONAL = ("annealed", "details", "catae-rate")
"""Recipes that no claim and no figure needs."""


def pick_scale(store: Store) -> str:
    """The paper's where the store has runs of it, else quick."""
    return "paper" if any(scale_of(run.config) == "paper" for run in store.runs()) else "quick"


def own_runs(rows: Rows) -> list[Run]:
    """The runs of the page's scale: what its recipes want, and what else was trained with its values."""
    wanted = {run_id(config.to_dict()) for name in RECIPES for config in rows.wanted(name)}
    runs = [row.run for row in rows.runs.values()]
    return [run for run in runs if run.id in wanted or scale_of(run.config) == rows.scale]


def page(rows: Rows, drawn: dict[str, Drawn]) -> str:
    """The report as HTML. The same store gives the same text."""
    scale, judged = rows.scale, ClaimRows.of(rows.store, rows.scale)
    verdicts = claims.judge_rows(judged)
    items, own, data = shown(verdicts), own_runs(rows), payload(rows, verdicts)
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    files = {name: Markup((HERE / name).read_text()) for name in ("page.css", "map.js", "table.js")}
    return environment.get_template("page.html").render(
        scale=scale,
        facts=facts(rows, own),
        own=len(own),
        others=len(rows.runs) - len(own),
        tally=tally(verdicts),
        total=len(verdicts),
        groups=groups(items),
        board=board(items),
        readings=ask(judged),
        marks=MARKS,
        names={**TASKS, "": BOTH},
        tasks=[TASKS[task] for task in PAPER_OPTIMA],
        sections={title: _figures(drawn, names) for title, names in SECTIONS.items()},
        map=_figures(drawn, ("map",)),
        chosen=chosen_table(rows),
        recipes=recipe_table(rows),
        provenance=provenance_table(rows),
        files=files,
        mapped=bool(data["maps"]),
        data=embedded(data),
    )


def prose(text: str) -> Markup:
    """Plain text as HTML: escaped, `code` as code, powers raised, tau_f and tau_b as the letters they stand for.

    A line breaks neither before nor after = and ±.
    """
    parts = str(text).split("`")
    for i, part in enumerate(parts):
        safe = re.sub(r"(\d)\^(\d+)", r"\1<sup>\2</sup>", str(escape(part)))
        if i % 2:
            parts[i] = f"<code>{safe}</code>"
        else:
            safe = re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", safe)
            parts[i] = re.sub(r"(?:\btau_|τ)([fb])\b", r"<i>τ</i><sub>\1</sub>", re.sub(r"\btau\b", "<i>τ</i>", safe))
    return Markup("".join(parts))


def facts(rows: Rows, runs: Sequence[Run]) -> dict[str, str]:
    """What was run, on what."""
    status = Counter(run.status for run in runs)
    rare = [f"{status[kind]} {kind}" for kind in ("stopped", "diverged", "failed") if status[kind]]
    places = _provenances(rows, runs)
    seconds = sum(float(found.get("seconds", 0)) for found, _ in places)
    if not runs:
        return {"Runs": "0"}
    return {
        "Runs": ", ".join([f"{len(runs):,}", *rare]),
        "Data": ", ".join(_unique(_data(str(name)) for run in runs if (name := run.config.get("dataset")))),
        "Trained on": ", ".join(_unique(_device(found) for found, _ in places)),
        "Training time": duration(seconds),
        "When": " to ".join(_unique(_days(places))),
    }


def chosen_table(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """By task, the setting of each role with its score over the seeds there are."""
    table: list[dict[str, Any]] = []
    for (task, role), config in rows.chosen.items():
        setting = rows.setting(task, role)
        losses = np.array([row.best("validation_loss") for row in setting.rows]) if setting else np.array([])
        taus = config.estimator.to_dict()
        table.append(
            {
                "task": TASKS.get(task, task),
                "estimator": "Softmax STE, the diagonal" if role == "diagonal" else LOOKS[role].label,
                "taus": ", ".join(f"{key} = {_plain(taus[key])}" for key in ("tau_f", "tau_b", "tau") if key in taus),
                "lr": f"{config.lr:g}",
                "loss": plus_minus(losses) if len(losses) else "",
                "n": len(losses),
                "diverged": setting.diverged if setting else 0,
                "seeds": setting.seeds if setting else "",
            }
        )
    tasks = _unique(row["task"] for row in table)
    return {task: [row for row in table if row["task"] == task] for task in tasks}


def recipe_table(rows: Rows) -> list[dict[str, Any]]:
    """What each recipe wants and what there is of it, with its command."""
    table = []
    for name, make in RECIPES.items():
        wanted = rows.wanted(name)
        there = sum(rows.lookup(config) is not None for config in wanted)
        about = (make.__doc__ or "").strip().splitlines()[0]
        command = f"dst sweep {name} --scale {rows.scale}"
        beyond = name in OPTIONAL
        table.append(
            {"name": name, "about": about, "wanted": len(wanted), "there": there, "command": command, "beyond": beyond}
        )
    return table


def provenance_table(rows: Rows) -> list[dict[str, Any]]:
    """Code, versions and machines, each with its runs."""
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for place, runs in _provenances(rows, [row.run for row in rows.runs.values()]):
        names = ("version", "commit", "torch", "numpy", "python", "system", "threads")
        told = {"device": _device(place), **{name: str(place.get(name, "")) for name in names}}
        if place.get("dirty"):
            told["commit"] += " (with changes)"
        row = found.setdefault(tuple(told.items()), {**told, "runs": 0, "seconds": 0.0})
        row["runs"] += runs
        row["seconds"] += float(place.get("seconds", 0))
    return [{**row, "seconds": duration(row["seconds"])} for row in found.values()]


def _provenances(rows: Rows, runs: Sequence[Run]) -> list[tuple[dict[str, Any], int]]:
    """Each chunk's provenance, with how many runs it had."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for run in runs:
        first.setdefault(run.provenance_id, run.id)
        counts[run.provenance_id] += 1
    return [(rows.store.provenance(found), counts[key]) for key, found in first.items()]


def _device(place: dict[str, Any]) -> str:
    if "device_name" in place:
        return str(place["device_name"])
    return f"{place['cores']} CPU cores" if place.get("device") == "cpu" and "cores" in place else "an unknown device"


def _days(places: list[tuple[dict[str, Any], int]]) -> list[str]:
    days = sorted(str(place[name])[:10] for place, _ in places for name in ("started", "ended") if name in place)
    return [days[0], days[-1]] if days else ["not recorded"]


def _plain(value: Any) -> str:
    """A temperature: a number, or the text of a schedule."""
    return value if isinstance(value, str) else f"{value:g}"


def _data(name: str) -> str:
    base = name.removesuffix(WHOLE)
    return DATASETS.get(base, base)


def _unique(words: Any) -> list[str]:
    return list(dict.fromkeys(words))


def duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def _figures(drawn: dict[str, Drawn], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "drawn": drawn[name], "panels": inline(name, drawn[name])} for name in names if name in drawn
    ]
