"""The fleet's kernels on the CPU under Triton's interpreter (TRITON_INTERPRET=1, as `make test` runs this folder), and
the same tests on CUDA by `make test-gpu`."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import decoupled_st as dst

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if find_spec("triton") else ["test_*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not INTERPRETED and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(autouse=True)
def plain_library() -> Iterator[None]:
    """What the fleet's kernels are held against is the library's plain version."""
    dst.use_kernels(False)
    yield
    dst.use_kernels(True)
