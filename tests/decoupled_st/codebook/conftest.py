"""The plain versions alone: the kernels are tested in their own folder."""

from collections.abc import Iterator

import pytest

import decoupled_st as dst
from decoupled_st.codebook import chunked


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    dst.use_kernels(False)
    yield
    dst.use_kernels(True)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tiles of few elements, so that the edges between them are met."""
    monkeypatch.setattr(chunked, "ROWS", 5)
    monkeypatch.setattr(chunked, "COLUMNS", 128)
