"""Compiled code where there is a compiler, for networks of any size."""

import pytest

from decoupled_st.kernels.packed import on_cpu
from decoupled_st.nn.logic import fused_trees, network


@pytest.fixture
def compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks go by the compiled code too; skipped where there is no compiler."""
    monkeypatch.setattr(network, "WORTH", 0)
    monkeypatch.setattr(fused_trees, "WORTH", 0)
    if on_cpu.library() is None:
        pytest.skip("there is no C compiler")
