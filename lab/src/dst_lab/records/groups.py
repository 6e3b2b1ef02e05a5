"""What a store holds of tasks that no recipe knows: runs that can be compared, and the best setting of each."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import Any

from dst_lab.cards import estimator, parts, title
from dst_lab.estimators import temperatures_in
from dst_lab.records.row import Row, setting_key
from dst_lab.records.rows import ENDED, Reader, Rows, Setting
from dst_lab.records.summary import cautious, spread_of_seeds, summary
from dst_lab.runs import FRESH, OWN_FIELDS, WHOLE, complete

KINDS = ("search", "fresh")
APART = ("estimator", "lr", "seed")
"""The fields in which the runs of a group may differ."""


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one task, or of one objective of one's own."""

    task: str
    title: str
    name: str
    """For the names of files and anchors: no other group of the page has it."""
    rows: Rows
    """These runs alone."""

    @cached_property
    def metrics(self) -> list[str]:
        """What its curves and maps show."""
        ended = [row for row in self.rows.runs.values() if row.done]
        return parts(self.task, dict.fromkeys(name for row in ended for name in row.curves))

    @cached_property
    def settings(self) -> list[Setting]:
        """Every setting that was trained, the lowest mean validation loss first; those with a run that diverged last.
        Where some have more seeds than others, the order is that of `rank`, so that luck on one seed counts little.
        Where there are search seeds and fresh ones, they are never averaged: a setting with both is two."""
        ended = [row for row in self.rows.runs.values() if row.run.status in ENDED]
        ended = [row for row in ended if not row.done or row.has("validation_loss")]
        mixed = len({_kind(row) for row in ended}) > 1
        by_setting: dict[tuple[str, str], list[Row]] = {}
        for row in ended:
            by_setting.setdefault((setting_key(row.run.config), _kind(row) if mixed else ""), []).append(row)
        settings = []
        for (_, seeds), rows in by_setting.items():
            done = [row for row in rows if row.done]
            settings.append(Setting(rows[0].run.config, done, seeds, len(rows) - len(done)))
        deviations = [(one.n, summary(one.rows, "validation_loss", "best").std) for one in settings]
        spread = spread_of_seeds(deviations)
        return sorted(settings, key=lambda one: rank(one, spread))

    @property
    def seeds(self) -> str:
        """The seeds by which settings are compared: "search" where there are fresh ones too, else ""."""
        return next((one.seeds for one in self.settings if one.seeds == "search"), "")

    @property
    def compared(self) -> list[Setting]:
        """The settings on these seeds, in their order."""
        return [setting for setting in self.settings if setting.seeds == self.seeds]

    @property
    def varied(self) -> list[str]:
        """The fields in which its settings differ, besides estimator and learning rate."""
        configs = [complete(setting.config) for setting in self.settings]
        fields = dict.fromkeys(field for config in configs for field in config if field not in APART)
        values = {field: {repr(one[field]) if field in one else "" for one in configs} for field in fields}
        return [field for field in fields if len(values[field]) > 1]

    @property
    def columns(self) -> list[str]:
        """The fields that a table of its settings has: those that differ, and the data set where nothing was held out,
        so that "validation" are the test images."""
        whole = any(str(setting.config.get("dataset", "")).endswith(WHOLE) for setting in self.settings)
        return list(dict.fromkeys([*self.varied, *["dataset"] * whole]))

    @cached_property
    def _given(self) -> tuple[str, ...]:
        """The fields in which runs that are compared may differ: the parameters of an objective of one's own."""
        own = any("objective" in setting.config for setting in self.settings)
        return ("parameters", *OWN_FIELDS) if own else ("parameters",)

    @cached_property
    def _alike(self) -> list[Setting]:
        """The settings that can be compared, in their order, those on fresh seeds last."""
        alike: dict[str, list[Setting]] = {}
        for setting in sorted(self.settings, key=lambda one: one.seeds == "fresh"):
            fields = {name: value for name, value in setting.config.items() if name not in (*APART, *self._given)}
            if setting.n:
                alike.setdefault(setting_key(fields), []).append(setting)
        return max(alike.values(), key=len, default=[])

    @cached_property
    def found(self) -> dict[str, Setting]:
        """The best setting of each estimator, on search seeds where it has such. Only runs that are equal in all other
        fields are compared, from the largest such family; parameters of an objective may differ."""
        found: dict[str, Setting] = {}
        for setting in self._alike:
            found.setdefault(str(setting.config["estimator"]["name"]), setting)
        return found

    @property
    def best(self) -> dict[str, Setting]:
        """The best setting of each estimator: on confirmation seeds where search seeds found it and it has fresh ones
        too, else on the seeds that it was found with."""
        fresh = {setting_key(one.config): one for one in self.settings if one.seeds == "fresh"}
        best = dict(self.found)
        for name, found in self.found.items():
            again = fresh.get(setting_key(found.config))
            if found.seeds == "search" and again:
                best[name] = replace(again, seeds="confirmation")
        return best

    @property
    def held(self) -> str:
        """The fields that the runs behind `best` share, and who has none: "epochs 1; Softmax STE is not among them"."""
        fields = [name for name in self.varied if name not in self._given]
        if not fields or not self._alike:
            return ""
        config = complete(self._alike[0].config)
        text = ", ".join(f"{name} {config.get(name, 'not given')}" for name in fields)
        every = dict.fromkeys(str(setting.config["estimator"]["name"]) for setting in self.settings if setting.n)
        left = [estimator(name).label for name in every if name not in self.best]
        return f"{text}; {' and '.join(left)} {'is' if len(left) == 1 else 'are'} not among them" if left else text

    @property
    def swept(self) -> list[str]:
        """The estimators that were trained at several pairs of two temperatures."""
        pairs: dict[str, set[Any]] = {}
        for row in self.rows.runs.values():
            if row.done and len(temperatures_in(row.run.config["estimator"])) > 1 and not row.taus.schedule:
                pairs.setdefault(row.run.estimator, set()).add(row.taus)
        return [name for name, tried in pairs.items() if len(tried) > 1]

    def runs_of(self, settings: Collection[Setting]) -> list[Row]:
        """The runs of these settings that ended, those that diverged among them."""
        kinds = {(setting_key(one.config), kind) for one in settings for kind in ([one.seeds] if one.seeds else KINDS)}
        ended = (row for row in self.rows.runs.values() if row.run.status in ENDED)
        return [row for row in ended if (setting_key(row.run.config), _kind(row)) in kinds]


def groups(rows: Rows, leave_out: Collection[str] = (), figures: Collection[str] = ()) -> list[Group]:
    """The store's runs by task, in the order of recording; an objective of one's own is a group of its own. `figures`
    are names that a page has already: those of a group's figures begin with its own."""
    members: dict[tuple[str, str], dict[str, Row]] = {}
    for run, row in rows.runs.items():
        if row.run.task not in leave_out:
            members.setdefault((row.run.task, str(row.run.config.get("objective", ""))), {})[run] = row
    listed: list[Group] = []
    for (task, objective), runs in members.items():
        heading, taken = objective or title(task), {group.name for group in listed}
        own = replace(rows, reader=Reader(rows.store, runs))
        listed.append(Group(task, heading, _name(heading, taken, figures), own))
    return listed


def _name(heading: str, taken: Collection[str], figures: Collection[str]) -> str:
    """A name in plain letters and digits. Headings that are alike in these are numbered, or one group would be shown
    with the figures of another."""
    plain = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "task"
    names = chain([plain], (f"{plain}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken and not any(one.startswith(f"{name}-") for one in figures))


def rank(setting: Setting, spread: float = 0.0) -> tuple[bool, float]:
    """A key to sort by: what diverged comes last, by the mean over the seeds that did not, as `cautious` takes it."""
    if not setting.n:
        return bool(setting.diverged), math.inf
    mean = float(setting.values("validation_loss").mean())
    value = cautious(mean, setting.n, spread)
    return bool(setting.diverged), value if math.isfinite(value) else math.inf


def _kind(row: Row) -> str:
    return "fresh" if row.run.seed >= FRESH else "search"
