"""Runs the examples in README.md, docs/ and docstrings as tests."""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], path=str(Path(__file__).parent)
).pytest()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One process a core is enough: torch's own threads would only get in each other's way."""
    import torch

    torch.set_num_threads(1)
