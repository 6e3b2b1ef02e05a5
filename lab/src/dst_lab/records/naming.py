"""Runs in a person's words."""

from collections.abc import Iterable
from typing import Any

from dst_lab.records.fields import names, value_at
from dst_lab.store.record import Run


def names_of_runs(runs: Iterable[Run]) -> dict[str, str]:
    """The task, the estimator with its numbers, the seed and every field in which runs of the task differ, by id."""
    by_task: dict[str, dict[str, Run]] = {}
    for run in runs:
        by_task.setdefault(run.task, {})[run.id] = run
    return {
        run.id: _name(run, more) for listed in by_task.values() for more in [_differing(listed.values())]
        for run in listed.values()
    }  # fmt: skip


def _name(run: Run, more: Iterable[str]) -> str:
    numbers: dict[str, Any] = {name: value for name, value in run.config["estimator"].items() if name != "name"}
    own = names(run.fields)
    numbers |= {"seed": run.seed} | {name: value_at(run.fields, name) for name in more if name in own}
    return " ".join([run.task, run.estimator, *(f"{name}={value}" for name, value in numbers.items()), f"({run.id})"])


def _differing(runs: Iterable[Run]) -> list[str]:
    """The fields, but for those that every name has, of which these runs have more than one value."""
    runs = list(runs)
    fields = dict.fromkeys(name for run in runs for name in names(run.fields))
    told = [name for name in fields if name not in ("task", "seed") and not name.startswith("estimator.")]
    return [name for name in told if len({repr(value_at(run.fields, name)) for run in runs}) > 1]
