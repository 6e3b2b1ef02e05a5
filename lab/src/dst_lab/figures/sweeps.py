"""The runs of one estimator over both of its temperatures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from dst_lab.estimators import temperatures_in
from dst_lab.figures.style import listing
from dst_lab.records import Row, Rows, setting_key, temperatures
from dst_lab.records.fields import names, value_at
from dst_lab.records.reader import ENDED
from dst_lab.runs import FRESH, WHOLE

LOSS = "validation_loss"
Cells: TypeAlias = Mapping[tuple[float, float], list[Row]]
"""(tau_f, tau_b) -> runs."""


def cells(rows: Rows, task: str, role: str, metric: str) -> dict[tuple[float, float], list[Row]]:
    """(tau_f, tau_b) -> the search's runs there, at one learning rate, that have the metric."""
    return at_rate((row for row in swept(rows, task, role) if row.done and row.has(metric)), rate(rows, task, role))


def diverged(rows: Rows, task: str, role: str) -> dict[tuple[float, float], int]:
    """(tau_f, tau_b) -> how many of the search's runs diverged there, at the same learning rate."""
    diverged_at = at_rate((row for row in swept(rows, task, role) if not row.done), rate(rows, task, role))
    return {at: len(members) for at, members in diverged_at.items()}


def search(rows: Rows, task: str, role: str) -> str:
    """The recipe that searches over both temperatures; "" where the study has none."""
    return rows.searches.get((task, role), ("",))[0]


def swept(rows: Rows, task: str, role: str) -> list[Row]:
    """The search's runs; before it is done, the sweep of the estimator with most settings that is there, alike in all
    fields but temperatures, learning rate and seed, and with images held out to choose by. Of equals the one with the
    lowest loss."""
    runs: list[Row] = []
    if (task, role) in rows.searches:  # its own part of the recipe, which may search for others too
        wanted = [config for config in rows.searches[task, role][1].wanted(rows.lookup) if config.task == task]
        runs = [*rows.of_status(wanted), *rows.of_status(wanted, "diverged")]
    if (task, role) in rows.chosen:
        return runs
    sweeps: dict[str, list[Row]] = {"": runs}
    for row in _of_one_kind(_constant(rows, task, role)):
        sweeps.setdefault(setting_key({**row.run.fields, "estimator": _options(row), "lr": 0}), []).append(row)
    counts = {key: _most_at_one_rate(sweep) for key, sweep in sweeps.items()}
    largest = [sweep for key, sweep in sweeps.items() if counts[key] == max(counts.values())]
    most = min(largest, key=_lowest) if len(largest) > 1 else largest[0]
    return most if most is runs or len({row.taus for row in most}) > 1 else []


def held_text(rows: Rows, task: str, role: str) -> str:
    """What the runs that are drawn have in common and others of the estimator do not, for a caption: "batch 32"."""
    sweep = swept(rows, task, role)
    if not sweep or (task, role) in rows.chosen:
        return ""
    others = [row.run.fields for row in _constant(rows, task, role)]
    apart = ("task", "seed", "lr", *(f"estimator.{name}" for name in temperatures_in(sweep[0].run.config["estimator"])))
    known = dict.fromkeys(name for fields in others for name in names(fields) if name not in apart)
    varied = [name for name in known if len({repr(value_at(fields, name)) for fields in others}) > 1]
    ours = sweep[0].run.fields
    return ", ".join(f"{name.rpartition('.')[2]} {value_at(ours, name)}" for name in varied if name in names(ours))


def _constant(rows: Rows, task: str, role: str) -> list[Row]:
    """The runs of an estimator at constant temperatures, with images held out to choose by."""
    return [
        row for row in rows.runs.values()
        if (row.run.task, row.run.estimator) == (task, role) and not row.taus.schedule and row.run.status in ENDED
        and not str(row.run.config.get("dataset", "")).endswith(WHOLE)
    ]  # fmt: skip


def _of_one_kind(runs: Sequence[Row]) -> list[Row]:
    """Those with search seeds or, where more settings have these, those that confirm: never both in one mean."""
    kinds: dict[bool, list[Row]] = {False: [], True: []}
    for row in runs:
        kinds[row.run.seed >= FRESH].append(row)
    settings = {fresh: len({setting_key(row.run.config) for row in some}) for fresh, some in kinds.items()}
    return kinds[settings[True] > settings[False]]


def _most_at_one_rate(sweep: Sequence[Row]) -> int:
    """How many settings are drawn: those of one learning rate."""
    at: dict[Any, set[Any]] = {}
    for row in sweep:
        at.setdefault(row.run.fields.get("lr"), set()).add(row.taus)
    return max(map(len, at.values()), default=0)


def _lowest(sweep: Sequence[Row]) -> float:
    """The lowest mean loss of a setting of which no run diverged; infinite where none is known."""
    losses: dict[str, list[float]] = {}
    lost = {setting_key(row.run.config) for row in sweep if not row.done}
    for row in sweep:
        if row.has(LOSS) and (key := setting_key(row.run.config)) not in lost:
            losses.setdefault(key, []).append(row.best(LOSS))
    return min((value for one in losses.values() if math.isfinite(value := sum(one) / len(one))), default=math.inf)


def _options(row: Row) -> dict[str, Any]:
    """What its estimator takes beside temperatures."""
    estimator = row.run.config["estimator"]
    return {name: value for name, value in estimator.items() if name not in temperatures_in(estimator)}


def rate(rows: Rows, task: str, role: str) -> float | None:
    """The learning rate that is drawn: the chosen one; before that, the one with most settings, then most runs, of
    equals the one with the lowest loss. None where there are no runs, or theirs is not recorded."""
    config = rows.chosen.get((task, role))
    if config is not None:
        return config.lr
    trained: dict[float | None, list[Row]] = {}
    for row in swept(rows, task, role):
        trained.setdefault(row.run.fields.get("lr"), []).append(row)
    done = {lr: [row for row in runs if row.done] for lr, runs in trained.items()}
    counts = {lr: len({row.taus for row in runs}) for lr, runs in done.items() if runs}
    return min(counts, key=lambda lr: (-counts[lr], -len(done[lr]), _lowest(trained[lr])), default=None)


def at_rate(runs: Iterable[Row], lr: float | None) -> dict[tuple[float, float], list[Row]]:
    """(tau_f, tau_b) -> those of the runs that have this learning rate."""
    members: dict[tuple[float, float], list[Row]] = {}
    for row in runs:
        tau_f, tau_b, _ = row.taus
        if tau_f is not None and tau_b is not None and row.run.fields.get("lr") == lr:
            members.setdefault((tau_f, tau_b), []).append(row)
    return members


def optimum(rows: Rows, task: str, role: str) -> tuple[float, float] | None:
    """The temperatures that the search chose; None where it has not, or a rule sets them."""
    config = rows.chosen.get((task, role))
    if config is None:
        return None
    tau_f, tau_b, _ = temperatures(config.estimator.to_dict())
    return None if tau_f is None or tau_b is None else (tau_f, tau_b)


def rate_text(rows: Rows, task: str, role: str) -> str:
    """The learning rate, and what else the runs have in common that others do not, for a caption."""
    lr, held = rate(rows, task, role), held_text(rows, task, role)
    told = ", ".join(filter(None, ("" if lr is None else f"learning rate {lr:g}", held)))
    return f" at {told}" if told else ""


def lost_text(lost: Mapping[tuple[float, float], int], how: str = "") -> str:
    """For a caption: where runs diverged."""
    if not lost:
        return ""
    counts = [f"{count} at τf = {f:g}, τb = {b:g}" for (f, b), count in sorted(lost.items())]
    more = [f"the rest at {len(counts) - 5} other settings"] if len(counts) > 5 else []
    return f" Diverged, and in no mean{how}: {listing([*counts[:5], *more])}."


def count_text(counts: Iterable[int]) -> str:
    """How many seeds: "5", or "3 to 5"."""
    n = sorted(set(counts))
    return str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
