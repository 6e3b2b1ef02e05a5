"""The page of the study of self-set temperatures, and its figures, follow from the committed records."""

import pytest
from drawings import seen

from dst_lab.store import Store
from dst_lab.studies.temperatures import TEMPERATURES
from results import build, self_set

pytestmark = pytest.mark.skipif(
    not (build.ROOT / self_set.RECORDS).exists(), reason=f"{self_set.RECORDS} is not there: no full-scale results yet"
)


@pytest.fixture(scope="module")
def rows():
    with Store.open(build.ROOT / self_set.RECORDS) as store:
        yield TEMPERATURES.rows(store, "paper")


def test_the_pages_quote_the_records(rows) -> None:
    committed = {name: (build.ROOT / name).read_text(encoding="utf-8") for name in self_set.PAGES}
    assert self_set.pages(rows) == committed, "a page is stale: make results"
    assert sum(text.count("<!-- results:") for text in committed.values()) == len(self_set.BLOCKS)


def test_the_records_are_small_enough_for_git() -> None:
    assert sum(file.stat().st_size for file in (build.ROOT / self_set.RECORDS).glob("*.sqlite.xz")) < 6e6


@pytest.mark.slow
def test_the_figures_are_those_of_the_records(rows) -> None:
    made = self_set.figures(rows)
    there = {str(path.relative_to(build.ROOT)) for path in (build.ROOT / self_set.RECORDS / "figures").iterdir()}
    assert there == made.keys()
    for name, body in made.items():
        assert seen(body) == seen((build.ROOT / name).read_bytes()), f"{name} is stale: make results"
