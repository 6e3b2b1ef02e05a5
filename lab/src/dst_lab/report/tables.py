"""The page's tables: what was run on what, what the chosen settings come to, plans and provenance."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dst_lab.cards import DATASETS, MetricCard, estimator, metric, title
from dst_lab.figures.style import numbers_of, plus_minus, value_text
from dst_lab.figures.sweeps import flat
from dst_lab.plans.plan import edge
from dst_lab.records import Rows, Setting
from dst_lab.records.groups import Group
from dst_lab.report.study import Study
from dst_lab.runs import OWN_FIELDS, WHOLE, Config, complete
from dst_lab.store import Run

UNKNOWN = "an unknown device"


def facts(rows: Rows, runs: Sequence[Run]) -> dict[str, str]:
    """What was run, on what."""
    status = Counter(run.status for run in runs)
    rare = [f"{status[kind]} {kind}" for kind in ("stopped", "diverged", "failed") if status[kind]]
    places = _provenances(rows, runs)
    seconds = sum(_seconds(place, count) for place, count in places)
    days = sorted(str(place[name])[:10] for place, _ in places for name in ("started", "ended") if name in place)
    if not runs:
        return {"Runs": "0"}
    lines = {
        "Runs": ", ".join([f"{len(runs):,}", *rare]),
        "Data": _data(runs),
        "Trained on": ", ".join(name for name in _unique(_device(place) for place, _ in places) if name != UNKNOWN),
        "Training time": duration(seconds) if seconds >= 1 else "",
        "When": " to ".join(_unique([days[0], days[-1]] if days else ["not recorded"])),
    }
    return {name: text for name, text in lines.items() if text}


@dataclass(frozen=True)
class SettingLine:
    """A setting in words."""

    label: str
    taus: str
    """Its temperatures and options; "" where it has none."""
    lr: str
    fields: tuple[str, ...]
    loss: str
    """The lowest validation loss, mean ± standard deviation; "" where no run was trained to the end."""
    n: int
    seeds: str
    diverged: int
    edge: str

    @property
    def runs(self) -> str:
        """How many runs, of which seeds, and how many diverged."""
        seeds = f"{self.seeds} seed".strip() + "s" * (self.n != 1)
        return f"n = {self.n} {seeds}" + (f", {self.diverged} diverged" if self.diverged else "")


def setting_line(setting: Setting, label: str = "", fields: Sequence[str] = (), edge: str = "") -> SettingLine:
    """A setting in words, by its estimator's name unless it has a label, with these fields of its config."""
    config, losses = complete(setting.config), setting.values("validation_loss")
    numbers = numbers_of(setting.config["estimator"])
    return SettingLine(
        label=label or setting.look.label,
        taus=", ".join(f"{name} = {value_text(value)}" for name, value in numbers.items()),
        lr=value_text(config["lr"]) if "lr" in config else "",
        fields=tuple(field_text(config.get(field, "")) for field in fields),
        loss=plus_minus(losses) if len(losses) else "",
        n=setting.n,
        seeds=setting.seeds,
        diverged=setting.diverged,
        edge=edge,
    )


def chosen_table(rows: Rows) -> dict[str, list[SettingLine]]:
    """The setting that was chosen for each role, by task."""
    table: dict[str, list[SettingLine]] = {}
    for (task, role), config in rows.chosen.items():
        setting, (_, plan) = rows.setting(task, role), rows.searches[task, role]
        if setting is not None:
            edge = on_edge((one.to_dict() for one in plan.wanted(rows.lookup)), config.to_dict())
            line = setting_line(setting, role_label(rows, config, role), edge=edge)
            table.setdefault(title(task), []).append(line)
    return table


def on_edge(tried: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    """A remark on the numbers of a setting that are the lowest or highest tried: the best may lie beyond."""
    fields, own = [flat(complete(one)) for one in tried], flat(complete(config))
    names = [name for name, value in own.items() if edge([one.get(name) for one in fields], value)]
    return f"on the edge of what was tried: {', '.join(names)}" if names else ""


def role_label(rows: Rows, config: Config, role: str) -> str:
    """A role in words: its estimator, with the name of the search where that has one of its own."""
    name, words = estimator(config.estimator.name).label, rows.recipes.roles.get(role)
    return f"{name}, {words}" if words and not words.startswith(name) else words or name


def settings_table(group: Group) -> list[SettingLine]:
    """Every setting of a group, the best first, with the fields that tell settings apart."""
    return [setting_line(setting, fields=group.columns) for setting in group.settings]


def field_text(value: Any) -> str:
    """A config's value; one that holds others as "name = value, .."."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {field_text(one)}" for name, one in value.items())
    if not isinstance(value, float):
        return str(value)
    text = value_text(value)
    return f"{text}.0" if text.lstrip("-").isdigit() else text  # 3.0 and 3 are two settings of an objective


def recipe_table(rows: Rows) -> list[dict[str, Any]]:
    """For each recipe the runs that it asks for, those that the store has, and its command."""
    return [
        {
            "name": name,
            "about": rows.recipes.about(name).partition("\n")[0],
            "wanted": len(wanted := rows.wanted(name)),
            "there": sum(rows.lookup(config) is not None for config in wanted),
            "command": rows.command(name).strip("`"),
            "beyond": name in rows.recipes.optional,
        }
        for name in rows.recipes.plans
    ]


def provenance_table(rows: Rows) -> list[dict[str, Any]]:
    """Code, versions and machines, each with its runs."""
    table: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for place, runs in _provenances(rows, [row.run for row in rows.runs.values()]):
        names = ("version", "commit", "torch", "numpy", "python", "system", "threads")
        fields = {"device": _device(place), **{name: str(place.get(name, "")) for name in names}}
        fields["changes"] = _changes(place) if place.get("dirty") else ""
        row = table.setdefault(tuple(fields.items()), {**fields, "runs": 0, "seconds": 0.0})
        row["runs"] += runs
        row["seconds"] += _seconds(place, runs)
    return [{**row, "seconds": duration(row["seconds"])} for row in table.values()]


def _changes(place: Mapping[str, Any]) -> str:
    """What had changed since the commit: the files, or that they were not recorded."""
    files = place.get("changed")
    if files:
        return f"changes in {', '.join(map(str, files))} (diff {place.get('diff', 'not recorded')})"
    return "changes that were not recorded"


def _provenances(rows: Rows, runs: Sequence[Run]) -> list[tuple[dict[str, Any], int]]:
    """Each provenance that was recorded, with how many runs have it."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for run in runs:
        first.setdefault(run.provenance_id, run.id)
        counts[run.provenance_id] += 1
    return [(rows.store.provenance(run_id), counts[key]) for key, run_id in first.items()]


def _seconds(place: Mapping[str, Any], runs: int) -> float:
    """How long the runs of a provenance took. Those of a fleet were trained together; runs by themselves that began in
    the same second and took as many milliseconds have the same provenance, and each took as long."""
    return float(place.get("seconds", 0)) * math.ceil(runs / (int(place.get("fleet", 0)) or 1))


def _device(place: dict[str, Any]) -> str:
    if "device_name" in place:
        return str(place["device_name"])
    return f"{place['cores']} CPU cores" if place.get("device") == "cpu" and "cores" in place else UNKNOWN


def _data(runs: Sequence[Run]) -> str:
    """The data sets in words, and in how many runs the test images stand in for validation."""
    names = [str(run.config.get("dataset") or "none") for run in runs]
    bases = [name.removesuffix(WHOLE) for name in names]
    text = ", ".join(_unique(DATASETS.get(base, base) for base in bases if base != "none"))
    whole = sum(name.endswith(WHOLE) for name in names)
    if not whole:
        return text
    which = f" in {whole:,} of {len(runs):,} runs" if whole < len(runs) else ""
    return f"{text}; nothing held out{which}: validation is the test images"


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


TESTED = ("test_accuracy", "test_bound", "test_loss")
"""What is shown of a task that its study names no metrics for: the first of these that its runs have, and the loss."""


@dataclass(frozen=True)
class Cell:
    """A setting on a task."""

    values: tuple[str, ...]
    """For each metric, mean ± standard deviation over the runs that did not diverge; "" where they lack it."""
    setting: str
    """Its temperatures and learning rate."""
    runs: str
    """How many runs, of which seeds, and how many diverged."""
    remark: str = ""


@dataclass(frozen=True)
class Results:
    """A table: what heads each column, and the rows, each with as many cells; None where there is no such setting."""

    columns: tuple[tuple[str, tuple[str, ...]], ...]
    """(task, metrics), in words."""
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]

    @property
    def usual(self) -> str:
        """What most cells say of their runs."""
        counts = Counter(cell.runs for _, cells in self.rows for cell in cells if cell)
        return counts.most_common(1)[0][0] if counts else ""


@dataclass(frozen=True)
class Entry:
    """What a cell is made of."""

    task: str
    title: str
    """The task in words."""
    label: str
    """The row in which it stands."""
    setting: Setting
    remark: str


def results(study: Study, rows: Rows) -> Results:
    """Every setting that the searches chose, on its confirmation runs if it has any."""
    entries = []
    for (task, role), config in rows.chosen.items():
        setting, about = rows.setting(task, role), study.remarks.get(task)
        if setting is not None:
            remark = about(rows, setting) if about and setting.n else ""
            entries.append(Entry(task, title(task), role_label(rows, config, role), setting, remark))
    own = [key for role in study.roles for key in rows.chosen if key[1] == role]
    return _table(study, entries, [role_label(rows, rows.chosen[key], key[1]) for key in own])


def best_results(study: Study, groups: Sequence[Group]) -> Results:
    """The best setting of each estimator among runs that no search chooses from, on the seeds it was found with."""
    entries = []
    for group in groups:
        for name, setting in group.best.items():
            tried = [one.config for one in group.compared if one.config["estimator"]["name"] == name]
            remark = on_edge(tried, setting.config)
            entries.append(Entry(group.name, group.title, setting.look.label, setting, remark))
    return _table(study, entries)


def _table(study: Study, entries: Sequence[Entry], first: Sequence[str] = ()) -> Results:
    """A column per task and metric, and a row per label, the first ones first."""
    tasks: dict[str, dict[str, Entry]] = {}
    for one in entries:
        tasks.setdefault(one.task, {})[one.label] = one
    cards = {task: headline(study, [one.setting for one in of.values()]) for task, of in tasks.items()}
    titles = {one.task: one.title for one in entries}
    return Results(
        tuple((titles[task], tuple(card.summary for card in cards[task])) for task in tasks),
        tuple(
            (label, tuple(cell(of[label], cards[task]) if label in of else None for task, of in tasks.items()))
            for label in dict.fromkeys([*first, *(one.label for one in entries)])
        ),
    )


def headline(study: Study, settings: Sequence[Setting]) -> list[MetricCard]:
    """The cards of the metrics that stand for a task, whose settings these are."""
    task = str(settings[0].config["task"])
    names = study.headline.get(task, ())
    if not names:
        had = {one for setting in settings for row in setting.rows for one in row.history}
        names = (*[one for one in TESTED if one in had][:1], "validation_loss")
    return [metric(name, task) for name in names]


def cell(entry: Entry, cards: Sequence[MetricCard]) -> Cell:
    """One setting in these metrics."""
    setting, line = entry.setting, setting_line(entry.setting)
    rate = f"lr {line.lr}" if line.lr else ""
    values = [card.factor * setting.values(card.name) for card in cards]
    lost = "diverged" if setting.diverged else ""
    return Cell(
        values=tuple(plus_minus(one) if len(one) else lost for one in values),
        setting=", ".join(filter(None, (line.taus, rate, field_text(_parameters(setting.config))))),
        runs=line.runs,
        remark=entry.remark,
    )


def _parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an objective, without temperatures and learning rate."""
    given = complete(config)
    fields = (
        {name: given[name] for name in OWN_FIELDS if name != "lr" and name in given} if "objective" in config else {}
    )
    return fields | dict(given.get("parameters", {}))
