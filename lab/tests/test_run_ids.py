"""The id of a run is a hash of its config: no change of the code may change it."""

from pathlib import Path

import pytest
from dst_lab.runs import CONFIGS
from dst_lab.store import Store, run_id

SLICES = sorted((Path(__file__).parents[1] / "results").rglob("*.sqlite.xz"))


def test_there_are_committed_records_of_every_study() -> None:
    assert {path.parent.name for path in SLICES} >= {"circuits", "codebooks", "estimators", "paper", "temperatures"}


@pytest.mark.parametrize("path", SLICES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_committed_records_are_read_as_the_runs_that_they_are(path) -> None:
    with Store.open(path) as store:
        runs = store.runs()
    assert runs
    for run in runs:
        config = CONFIGS[run.task].from_dict(run.config)
        assert (run_id(config.to_dict()), config.to_dict()) == (run.id, run.config)
