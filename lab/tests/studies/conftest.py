"""What the tests of studies share: rows of a planted store, which is closed at the end of the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dst_lab.records import Rows
from dst_lab.report import Study
from dst_lab.store import Store


@pytest.fixture
def rows_at() -> Iterator[Callable[[Study, Path], Rows]]:
    """`rows_at(study, path)`: the rows of a store as the study sees them."""
    with ExitStack() as opened:
        yield lambda study, path: study.rows(opened.enter_context(Store.open(path)), study.recipes.scales[0])
