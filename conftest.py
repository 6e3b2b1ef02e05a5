"""Runs the examples in README.md, docs/ and docstrings as tests."""

import contextlib
import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

# Triton comes with CUDA builds of torch only.
_HERE = Path(__file__).parent
_FILES = [path for source in ("src", "lab/src") for path in (_HERE / source).rglob("*.py")]
_SOURCES = {str(path): path.read_text(encoding="utf-8") for path in _FILES}
_KERNELS = [path for path, text in _SOURCES.items() if "\nimport triton" in text or "\nfrom triton" in text]
collect_ignore = [] if find_spec("triton") else _KERNELS


def remember(page: dict[str, Any]) -> None:
    """Note what is registered before the examples of a page, which may register estimators, rules, tasks, metrics."""
    from dst_lab import cards, runs, tasks

    from decoupled_st.estimators import spec
    from decoupled_st.temperatures import registry

    tables: list[dict[str, Any]] = [
        spec._registry,
        registry._RULES,
        cards.METRICS,
        tasks.TASKS._known,
        runs.CONFIGS._known,
    ]
    page["registered_before"] = [(table, dict(table)) for table in tables]


def restore(page: dict[str, Any]) -> None:
    """Let other tests in this process find what was registered before, and the tasks whose modules are imported now."""
    from dst_lab.runs import BUILT_IN

    for table, before in page["registered_before"]:
        built_in = {name: value for name, value in table.items() if name in BUILT_IN}
        table.clear()
        table.update(before | built_in)


def run_block(example: Example) -> None:
    """Run a block of a page. What it prints must stand in it as comments."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    for line in printed.getvalue().splitlines():
        assert f"# {line}" in example.parsed, f"the block prints {line!r}, which none of its comments shows"


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser("python", run_block)],
    patterns=["README.md", "docs/*.md"],
    path=str(Path(__file__).parent),
    setup=remember,
    teardown=restore,
).pytest()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One process per core is enough: torch's own threads would only get in each other's way."""
    import torch

    torch.set_num_threads(1)
