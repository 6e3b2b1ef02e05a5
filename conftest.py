"""Runs the examples in README.md, docs/ and docstrings as tests."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# Triton comes with CUDA builds of torch only.
_NAMES = ("binary", "categorical", "codebook", "noise", "temperatures", "reinmax")
_KERNELS = [f"src/decoupled_st/kernels/{name}.py" for name in _NAMES]
collect_ignore = [] if find_spec("triton") else ["src/dst_lab/fleet/cuda", *_KERNELS]

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], path=str(Path(__file__).parent)
).pytest()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One process a core is enough: torch's own threads would only get in each other's way."""
    import torch

    torch.set_num_threads(1)
