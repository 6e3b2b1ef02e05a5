"""Plausible bugs of the library and the laboratory, one at a time in a copy of them: the tests must go red for each.

Each is a mistake seen in public straight-through code, or one slip away from ours. An area's are in its table
`AREA.mutants`, here or in lab/tests/mutations, in the form that `mutation.read` takes.
"""

from pathlib import Path

import pytest
from mutations.mutation import ROOT, Mutation, goes_red, is_green_unchanged, read

pytestmark = pytest.mark.slow
TABLES = [path for tests in ("tests", "lab/tests") for path in sorted((ROOT / tests / "mutations").glob("*.mutants"))]
AREAS = {path.stem: read(path) for path in TABLES}


@pytest.mark.parametrize("area", AREAS)
def test_the_unchanged_copy_is_green_and_is_what_is_tested(area: str, tmp_path: Path) -> None:
    """Red then means that the bug was seen, not that the copy was broken."""
    is_green_unchanged(AREAS[area], tmp_path)


@pytest.mark.parametrize("mutation", [bug for area in AREAS.values() for bug in area], ids=lambda bug: bug.name)
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)
