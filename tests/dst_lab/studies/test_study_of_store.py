"""Whose page a store gets where no study is asked for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import PROVENANCE

from dst_lab.store import Record, Series, Store
from dst_lab.studies import ANY, PAPER, TEMPERATURES, study_of


@pytest.mark.parametrize(("share", "page"), [(0.1, ANY), (0.4, ANY), (0.5, PAPER), (1.0, PAPER)])
def test_a_page_of_claims_takes_half_a_recipe(tmp_path: Path, share: float, page: object) -> None:
    """Five runs with the defaults are part of a grid of sixty: their page is about them, not about claims."""
    configs = PAPER.recipes.plans["sbn-grid"]("quick").wanted(lambda _: None)
    assert len(configs) == 60
    losses = {"validation_loss": Series(np.array([1]), np.array([1.0], np.float32))}
    records = [
        Record(config=config.to_dict(), status="done", history=losses, artefacts={}, provenance=PROVENANCE)
        for config in configs[: round(share * 60)]
    ]
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        assert study_of(store, half=True) is PAPER, "of an empty store"
        store.put(records)
        assert study_of(store, half=True) is page
        assert study_of(store) is PAPER


def test_a_small_recipe_among_runs_of_ones_own_decides_no_page(tmp_path: Path) -> None:
    """Two runs with the defaults are all of `best-constants` at the quick scale."""
    best = TEMPERATURES.recipes.plans["best-constants"]("quick").wanted(lambda _: None)
    others = [replace(best[0], lr=lr, seed=seed) for lr in (0.0301, 0.0302) for seed in range(3)]
    losses = {"validation_loss": Series(np.array([1]), np.array([1.0], np.float32))}
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        for configs in (best, others):
            store.put([Record(config=config.to_dict(), status="done", history=losses) for config in configs])
            assert study_of(store, half=True) is ANY
        assert study_of(store) is TEMPERATURES
