"""Whose page a store gets where no study is asked for."""

from pathlib import Path

import numpy as np
import pytest
from planted import PROVENANCE

from dst_lab.store import Record, Series, Store
from dst_lab.studies import ANY, PAPER, study_of


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
