"""The page of the study of estimators, and its figures, follow from the committed records."""

import pytest
from drawings import seen

from dst_lab.store import Store
from dst_lab.studies.estimators import ESTIMATORS
from results import build, compared

pytestmark = pytest.mark.skipif(
    not (build.ROOT / compared.RECORDS).exists(), reason=f"{compared.RECORDS} is not there: no full-scale results yet"
)


@pytest.fixture(scope="module")
def rows():
    with Store.open(build.ROOT / compared.RECORDS) as store:
        yield ESTIMATORS.rows(store, "paper")


def test_the_page_quotes_the_records(rows) -> None:
    committed = (build.ROOT / compared.PAGE).read_text(encoding="utf-8")
    assert compared.page(rows) == committed, f"{compared.PAGE} is stale: make results"
    assert committed.count("<!-- results:") == len(compared.BLOCKS)


def test_the_records_are_small_enough_for_git() -> None:
    assert sum(file.stat().st_size for file in (build.ROOT / compared.RECORDS).glob("*.sqlite.xz")) < 10e6


@pytest.mark.slow
def test_the_figures_are_those_of_the_records(rows) -> None:
    made = compared.figures(rows)
    there = {str(path.relative_to(build.ROOT)) for path in (build.ROOT / compared.RECORDS / "figures").iterdir()}
    assert there == made.keys()
    for name, body in made.items():
        assert seen(body) == seen((build.ROOT / name).read_bytes()), f"{name} is stale: make results"
