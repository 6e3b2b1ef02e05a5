"""The curves that `dst watch` shows: the settings in training and the best recorded, one panel per task."""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dst_lab.cli.commands.show import SETTING
from dst_lab.cli.terminal.plot import Curve
from dst_lab.configs import FRESH, complete
from dst_lab.configs.cards import metric as card
from dst_lab.engines.live import Chunk
from dst_lab.records import Row, setting_key
from dst_lab.store import DamagedRunError, Run, Store, run_id
from dst_lab.store.disk.side_files import side_files
from dst_lab.store.views.conditions import Condition
from dst_lab.store.views.table import check_conditions, fits, names, value_at


@dataclass(frozen=True)
class Line:
    """The curve of one setting, over its search seeds or its fresh ones."""

    config: Mapping[str, Any]
    curve: Curve
    runs: int
    training: bool
    now: float
    best: float
    """The mean of the runs' good ends so far; the latest where the metric has none."""
    diverged: int = 0
    """How many runs did, beside those recorded or among those in training."""
    name: str = ""


@dataclass(frozen=True)
class Panel:
    """The curves of one task."""

    task: str
    lines: list[Line]
    """The best first, after them those of which a run diverged."""
    others: int
    """How many settings are not among them."""
    end: float
    """Where the axis ends, in `unit`."""
    unit: str
    objective: str = ""
    """Which one of somebody's own it is."""


class Recorded:
    """What a store holds, read again when its file has changed; each curve is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[Run] = []
        self.damaged = 0
        """How many others it holds, which cannot be read."""
        self._seen: object = None
        self._curves: dict[tuple[str, ...], Curve | None] = {}

    def refresh(self) -> None:
        """`StoreError` where there is no store, or none that can be read."""
        files = (self.path, *side_files(self.path)[:1])
        now = [(s.st_ino, s.st_size, s.st_mtime_ns) for s in (file.stat() for file in files if file.exists())]
        if not now or now != self._seen:
            with Store.open(self.path) as store:
                self.damaged = 0
                try:
                    self.runs = store.runs()
                except DamagedRunError:
                    self.damaged = len(store.leave_out_damaged())
                    self.runs = store.runs()
            self._seen = now

    def curves(self, runs: Sequence[Run], metric: str) -> list[tuple[Run, Curve]]:
        """Those of the runs that were trained to the end and have the metric."""
        done = [run for run in runs if run.status == "done"]
        if any(self._key(run, metric) not in self._curves for run in done):
            with Store.open(self.path) as store:
                for run in done:
                    if self._key(run, metric) not in self._curves:
                        row = Row(run, partial(store.history, run.id))
                        self._curves[self._key(run, metric)] = _curve(row, metric)
        pairs = [(run, self._curves[self._key(run, metric)]) for run in done]
        return [(run, curve) for run, curve in pairs if curve is not None]

    def _key(self, run: Run, metric: str) -> tuple[str, ...]:
        return run.id, run.provenance_id, metric


def _curve(row: Row, metric: str) -> Curve | None:
    if not row.has(metric) or row.values(metric).ndim != 1:
        return None
    return Curve(row.progress(metric), row.values(metric))


def panels(
    recorded: Recorded, chunks: Sequence[Chunk], conditions: Sequence[Condition], metric: str, top: int
) -> list[Panel]:
    """One for each task or objective in training or, where there is none, for the one that was recorded last."""
    training = [_in_training(config) for chunk in chunks for config in chunk.configs]
    check_conditions(conditions, [*recorded.runs, *training])
    fitting = [run for run in recorded.runs if fits(run, conditions)]
    subjects = dict.fromkeys(_subject(chunk.configs[0]) for chunk in chunks)
    if not subjects and fitting:
        subjects = {_subject(fitting[-1].config): None}
    drawn = []
    for subject in subjects:
        mine = [chunk for chunk in chunks if _subject(chunk.configs[0]) == subject]
        lines = [line for chunk in mine for line in _live(chunk, conditions, metric)]
        own = [run for run in fitting if _subject(run.config) == subject]
        diverged = Counter(_key(run.config) for run in own if run.status == "diverged")
        done = _settings(recorded.curves(own, metric), diverged, metric)
        drawn.append(replace(_panel(subject[0], lines, done, metric, top), objective=subject[1]))
    return [panel for panel in drawn if panel.lines]


def _subject(config: Mapping[str, Any]) -> tuple[str, str]:
    """What settings are compared within: their task and, where it is somebody's own, their objective."""
    return str(config["task"]), str(config.get("objective") or "")


def _panel(task: str, training: list[Line], recorded: list[Line], metric: str, top: int) -> Panel:
    """The best that are in training, and the best recorded; without any in training, the best recorded ones."""
    sign = -card(metric).direction

    def by_best(lines: list[Line]) -> list[Line]:
        return sorted(lines, key=lambda line: (math.isnan(line.best), line.diverged > 0, sign * line.best))

    every, shown = [*training, *recorded], by_best(recorded)[:top]
    if training:
        shown = by_best([*by_best(training)[: max(1, top - len(shown[:1]))], *shown[:1]])[:top]
    named = [_named(line, _varied(shown), len({_is_fresh(line.config) for line in shown}) > 1) for line in shown]
    end = max((float(line.curve.x[-1]) for line in shown if line.curve.x.size), default=1.0)
    epochs = [line.config.get("epochs") for line in shown]
    if training and all(epochs):
        end = max(end, *(float(count) for count in epochs if count))
    return Panel(task, named, len(every) - len(shown), end, "epochs" if all(epochs) else "steps")


def _live(chunk: Chunk, conditions: Sequence[Condition], metric: str) -> list[Line]:
    """The settings of a chunk in training."""
    if metric not in chunk.history:
        return []
    steps, values = chunk.history[metric]
    members: dict[tuple[str, bool], list[int]] = {}
    for member in chunk.alive:
        config = chunk.configs[member]
        if fits(_in_training(config), conditions):
            members.setdefault(_key(config), []).append(member)
    lines = []
    for of in members.values():
        config = chunk.configs[of[0]]
        scale = config["epochs"] / chunk.steps if config.get("epochs") else 1.0
        line = _line(config, steps * scale, values[:, of], metric, training=True)
        lines.append(replace(line, diverged=_diverged(chunk, of)))
    return lines


def _diverged(chunk: Chunk, members: Sequence[int]) -> int:
    """How many of these have a loss that is no number, by which a run is recorded as diverged."""
    _, losses = chunk.history.get("validation_loss", (None, np.zeros((0, 0))))
    return int((~np.isfinite(losses[-1, members])).sum()) if len(losses) else 0


def _key(config: Mapping[str, Any]) -> tuple[str, bool]:
    """What the runs of a curve share: their setting, and whether their seeds are fresh."""
    return setting_key(config), _is_fresh(config)


def _is_fresh(config: Mapping[str, Any]) -> bool:
    return int(config["seed"]) >= FRESH


def _in_training(config: Mapping[str, Any]) -> Run:
    return Run(id=run_id(config), config=dict(config), status="training", detail={}, provenance_id="")


def _settings(done: Iterable[tuple[Run, Curve]], diverged: Mapping[tuple[str, bool], int], metric: str) -> list[Line]:
    """The settings of recorded runs, each as long as its longest run, with how many others of it diverged."""
    groups: dict[tuple[str, bool], list[tuple[Run, Curve]]] = {}
    for run, curve in done:
        groups.setdefault(_key(run.config), []).append((run, curve))
    lines = []
    for key, members in groups.items():
        longest = max((curve for _, curve in members), key=lambda curve: curve.x.size)
        values = np.full((longest.x.size, len(members)), np.nan)
        for column, (_, curve) in enumerate(members):
            values[: curve.y.size, column] = curve.y
            values[curve.y.size :, column] = curve.y[-1:].mean()  # a run that has ended stays where it ended
        line = _line(members[0][0].config, longest.x, values, metric, training=False)
        lines.append(replace(line, diverged=diverged.get(key, 0)))
    return lines


def _line(config: Mapping[str, Any], x: Any, values: Any, metric: str, *, training: bool) -> Line:
    """The mean over runs of values [T, runs], those that are there. The best is the mean of each run's own, as plans
    choose by it and `dst show` has it: runs need not be at their best, nor end, at the same time."""
    present, direction = np.where(np.isfinite(values), values, np.nan).astype(np.float64), card(metric).direction
    known = [run[np.isfinite(run)] for run in present.T]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a mean over nothing
        mean = np.nanmean(present, 1)
        now = float(np.mean([run[-1] for run in known if run.size]))
        best = float(np.mean([direction * (direction * run).max() for run in known if run.size])) if direction else now
    return Line(complete(config), Curve(np.asarray(x, np.float64), mean), values.shape[1], training, now, best)


def _varied(lines: Sequence[Line]) -> list[str]:
    """The fields in which these settings differ."""
    values_of: dict[str, set[str]] = {}
    for line in lines:
        for name in names(line.config):
            values_of.setdefault(name, set()).add(repr(value_at(line.config, name)))
    partly = {name for name in values_of if any(value_at(line.config, name) is None for line in lines)}
    varied = [name for name, values in values_of.items() if name != "seed" and (len(values) > 1 or name in partly)]
    first = ("estimator.name", *SETTING)
    return sorted(varied, key=lambda name: first.index(name) if name in first else len(first))


def _named(line: Line, varied: Sequence[str], of_seeds: bool) -> Line:
    """The line, named by what tells it from the others; `of_seeds`: by the kind of its seeds, too."""
    pairs = [(name.removeprefix("estimator."), value_at(line.config, name)) for name in varied]
    pairs += [("seeds", "fresh" if _is_fresh(line.config) else "search")] if of_seeds else []
    words = [str(value) if name == "name" else f"{name}={_short(value)}" for name, value in pairs if value is not None]
    return replace(line, name=" ".join(words) or str(line.config["estimator"]["name"]))


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
