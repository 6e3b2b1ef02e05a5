"""An estimator or a rule of one's own that was edited: recorded runs are named, and a checkpoint is not continued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import TrainingStoppedError
from dst_lab.fleet.saved import provenance
from dst_lab.store import Store
from dst_lab.train import train

PARTS = {
    "toy_ste": (toys.ToySTE, Choice.make, {"name": "toy_ste", "tau": 0.5}, "estimator_source"),
    "falling": (
        toys.Falling,
        Choice.make,
        {"name": "decoupled", "tau_f": "falling", "tau_b": 1.0},
        "rule_source_falling",
    ),
}


@pytest.fixture(params=PARTS)
def part(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(name, key of the record, the choice, a function that edits the part's module)."""
    kind, make, values, key = PARTS[request.param]
    mark = ["of monday"]
    monkeypatch.setattr(provenance, "source_of", lambda of: mark[0] if of is kind else "")
    return request.param, key, make(**values), lambda: mark.__setitem__(0, "of tuesday")


def test_runs_of_another_version_are_named_and_count(part: Any, small: Any, tmp_path: Path) -> None:
    name, key, choice, edit = part
    config, engine, said = small("stochastic-binary", epochs=1, estimator=choice), LocalEngine(torch.device("cpu")), []
    job = Job(progress=lambda progress: progress.message and said.append(progress.message))
    path = tmp_path / "a.sqlite"
    assert train([config], engine, path, job).trained == 1
    with Store.open(path) as store:
        assert store.provenance(store.runs()[0].id)[key] == "of monday"
    assert train([replace(config, seed=9)], engine, path, job).trained == 1
    assert said == []
    edit()
    assert train([config], engine, path, job).already == 1
    assert said == [
        f"2 of the 2 recorded runs of {name} were trained by another version of its module, and count as they are: "
        "where that matters, give another --store, or remove them"
    ]


def test_a_checkpoint_of_another_version_is_not_continued(part: Any, small: Any, tmp_path: Path) -> None:
    _, _, choice, edit = part
    config, engine = small("stochastic-binary", epochs=1, estimator=choice), LocalEngine(torch.device("cpu"))
    steps, said, path = iter(range(100)), [], tmp_path / "a.sqlite"
    with pytest.raises(TrainingStoppedError):
        train([config], engine, path, Job(stop=lambda: next(steps) == 5))
    edit()
    taken: list[int] = []

    def progress(one: Any) -> None:
        if one.fleet:
            taken.append(one.fleet.step)
        if one.message:
            said.append(one.message)

    assert train([config], engine, path, Job(progress=progress)).trained == 1
    assert taken[0] == 1, "from the beginning"
    (sentence,) = said
    assert "cannot be gone on from (the module of its task, estimator or rule was changed since)" in sentence
