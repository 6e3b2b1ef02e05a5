"""The page of the study of codebooks, and its figures, follow from the committed records."""

import pytest
from drawings import seen

from dst_lab.store import Store
from dst_lab.studies.codebooks import CODEBOOKS
from results import build, codebook_tables

pytestmark = pytest.mark.skipif(
    not (build.ROOT / codebook_tables.RECORDS).exists(),
    reason=f"{codebook_tables.RECORDS} is not there: no full-scale results yet",
)


@pytest.fixture(scope="module")
def rows():
    with Store.open(build.ROOT / codebook_tables.RECORDS) as store:
        yield CODEBOOKS.rows(store, "paper")


def test_the_page_quotes_the_records(rows) -> None:
    committed = (build.ROOT / codebook_tables.PAGE).read_text(encoding="utf-8")
    assert codebook_tables.page(rows) == committed, f"{codebook_tables.PAGE} is stale: make results"
    assert committed.count("<!-- results:") == len(codebook_tables.BLOCKS)


def test_the_records_are_small_enough_for_git() -> None:
    folder = build.ROOT / codebook_tables.RECORDS
    assert sum(file.stat().st_size for file in folder.glob("*.sqlite.xz")) < 10e6


@pytest.mark.slow
def test_the_figures_are_those_of_the_records(rows) -> None:
    made = codebook_tables.figures(rows)
    folder = build.ROOT / codebook_tables.RECORDS / "figures"
    assert {str(path.relative_to(build.ROOT)) for path in folder.iterdir()} == made.keys()
    for name, body in made.items():
        assert seen(body) == seen((build.ROOT / name).read_bytes()), f"{name} is stale: make results"
