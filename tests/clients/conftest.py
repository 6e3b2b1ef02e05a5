"""Packages that people already use: ours in place of theirs. `make test-clients` installs the versions that are pinned.

Without the packages these tests are skipped, unless DST_REQUIRE_CLIENTS=1 says that they must run.
"""

import importlib
import os
from typing import Any

import pytest
import torch
from torch import Tensor


@pytest.fixture
def client() -> Any:
    """`client("transformers")`: the package, or a skip that says what is not tested."""

    def find(name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError:
            if os.environ.get("DST_REQUIRE_CLIENTS") == "1":
                raise
            pytest.skip(f"NOT TESTED with {name}, which is not installed: make test-clients")

    return find


def gumbel_as_torch_draws_it(logits: Tensor) -> Tensor:
    """The noise that `F.gumbel_softmax` draws, with the same use of torch's global generator."""
    return -torch.empty_like(logits, memory_format=torch.legacy_contiguous_format).exponential_().log()
