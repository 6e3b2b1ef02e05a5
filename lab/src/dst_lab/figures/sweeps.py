"""The runs of one estimator over both of its temperatures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from dst_lab.estimators import temperatures_in
from dst_lab.figures.style import listing, numbers_of
from dst_lab.plans.plan import edge
from dst_lab.records import Row, Rows, Setting, setting_key, temperatures
from dst_lab.records.groups import Group
from dst_lab.runs import complete

At: TypeAlias = tuple[float, float]
"""(tau_f, tau_b)."""
Cells: TypeAlias = Mapping[At, list[Row]]


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs, whichever way they ended, and what a figure says of them."""

    runs: Sequence[Row]
    lr: float | None = None
    """The learning rate that is drawn."""
    chosen: At | None = None
    """What a search chose."""
    recipe: str = ""
    """The recipe that searches."""
    missing: tuple[str, ...] = ()
    seeds: str = "seeds"
    """The kind of seeds, in words."""
    held: str = ""
    """What the runs have in common and others do not."""

    def cells(self, metric: str) -> dict[At, list[Row]]:
        """The runs that trained to the end and have the metric, by temperatures."""
        return at_rate((row for row in self.runs if row.done and row.has(metric)), self.lr)

    @cached_property
    def lost(self) -> dict[At, int]:
        """How many runs diverged, by temperatures."""
        return {at: len(rows) for at, rows in at_rate((row for row in self.runs if not row.done), self.lr).items()}

    @property
    def where(self) -> str:
        """For a caption: the learning rate, and what the runs have in common."""
        words = ", ".join(filter(None, ("" if self.lr is None else f"learning rate {self.lr:g}", self.held)))
        return f" at {words}" if words else ""

    def on_edge(self, at: At) -> str:
        """For a caption: which temperatures of a setting are the lowest or highest tried; the best may lie beyond."""
        tried = [*self.cells("validation_loss"), *self.lost]
        names = [
            f"{name} = {value:g}"
            for name, values, value in zip(("τf", "τb"), zip(*tried, strict=True), at, strict=True)
            if edge(values, value)
        ]
        return f" On the edge of what was tried: {listing(names)}; the best may lie beyond." if names else ""


def searched(rows: Rows, task: str, role: str) -> Sweep:
    """The runs so far of the search over both temperatures."""
    recipe, plan = rows.searches[task, role]
    wanted = [config for config in plan.wanted(rows.lookup) if config.task == task]
    runs = [*rows.of_status(wanted), *rows.of_status(wanted, "diverged")]
    config, chosen = rows.chosen.get((task, role)), None
    if config is not None:
        tau_f, tau_b, _ = temperatures(config.estimator.to_dict())
        chosen = None if tau_f is None or tau_b is None else (tau_f, tau_b)
    lr = config.lr if config is not None else _most(runs)
    return Sweep(runs, lr, chosen, recipe, tuple(rows.missing(recipe, task)), "search seeds")


def of_group(group: Group, name: str) -> Sweep:
    """The largest sweep of an estimator: runs that differ in temperatures and seed alone, on seeds of one kind; of
    equally large ones, that with the best setting."""
    settings = [one for one in group.settings if one.config["estimator"]["name"] == name]
    settings = [one for one in settings if not temperatures(one.config["estimator"]).schedule]
    sweeps: dict[str, list[Setting]] = {}
    for one in settings:
        given = one.config["estimator"]
        own = {key: value for key, value in given.items() if key not in temperatures_in(given)}
        sweeps.setdefault(setting_key({**one.config, "estimator": own, "seeds of one kind": one.seeds}), []).append(one)
    if not sweeps:
        return Sweep([])
    largest = max(sweeps.values(), key=len)  # the settings are ordered: of equals, the first is the best
    first, taus = largest[0], temperatures_in(largest[0].config["estimator"])
    every, others = [flat(complete(one.config)) for one in settings], flat(complete(first.config))
    others = {key: value for key, value in others.items() if len({repr(one.get(key)) for one in every}) > 1}
    held = ", ".join(f"{key} {value}" for key, value in others.items() if key not in (*taus, "lr"))
    return Sweep(group.runs_of(largest), complete(first.config).get("lr"), seeds=first.seeds_text, held=held)


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator, its numbers and the config's fields by their own names, those inside others too."""
    fields: dict[str, Any] = {"estimator": config["estimator"]["name"], **numbers_of(config["estimator"])}
    for name, value in config.items():
        if name not in ("estimator", "seed", "task", "objective"):
            fields |= dict(value) if isinstance(value, Mapping) else {name: value}
    return fields


def at_rate(runs: Iterable[Row], lr: float | None) -> dict[At, list[Row]]:
    """The runs that have this learning rate, by temperatures."""
    members: dict[At, list[Row]] = {}
    for row in runs:
        tau_f, tau_b, _ = row.taus
        if tau_f is not None and tau_b is not None and row.run.fields.get("lr") == lr:
            members.setdefault((tau_f, tau_b), []).append(row)
    return members


def _most(runs: Sequence[Row]) -> float | None:
    """The learning rate of most settings, then of most runs; of equals, that of the lowest loss."""
    at: dict[float | None, list[Row]] = {}
    for row in runs:
        if row.done and row.has("validation_loss"):
            at.setdefault(row.run.fields.get("lr"), []).append(row)
    sizes = {
        lr: (-len({row.taus for row in of}), -len(of), min(row.best("validation_loss") for row in of))
        for lr, of in at.items()
    }
    return min(sizes, key=lambda lr: sizes[lr], default=None)


def lost_text(lost: Mapping[At, int], how: str = "") -> str:
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
