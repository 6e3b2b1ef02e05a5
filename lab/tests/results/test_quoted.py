"""The pages of the studies beside the paper's, and their figures, follow from the committed records."""

import re

import pytest
from drawings import seen
from dst_lab.store import Store
from results import build, codebook_tables, compared, self_set
from results.quoted import Quoted

ALL = {quoted.study.name: quoted for quoted in (codebook_tables.QUOTED, compared.QUOTED, self_set.QUOTED)}


@pytest.fixture(scope="module", params=list(ALL))
def quoted(request) -> Quoted:
    return ALL[request.param]


@pytest.fixture(scope="module")
def rows(quoted):
    with Store.open(build.ROOT / quoted.records) as store:
        yield quoted.study.rows(store, "paper")


def test_the_pages_quote_the_records(quoted, rows) -> None:
    committed = {name: (build.ROOT / name).read_text(encoding="utf-8") for name in quoted.names}
    assert quoted.pages(rows) == committed, "a page is stale: make results"
    begun = [name for text in committed.values() for name in re.findall(r"<!-- results:(\S*) -->", text)]
    made = [name for text in committed.values() for _, name, _, _ in build.BLOCK.findall(text)]
    assert sorted(begun) == sorted(made) == sorted(quoted.blocks), "a block is not made, or stands on no page"


def test_the_records_are_small_enough_for_git(quoted) -> None:
    assert sum(file.stat().st_size for file in (build.ROOT / quoted.records).glob("*.sqlite.xz")) < 10e6


@pytest.mark.slow
def test_the_figures_are_those_of_the_records(quoted, rows) -> None:
    made = quoted.figures(rows)
    there = {str(path.relative_to(build.ROOT)) for path in (build.ROOT / quoted.records / "figures").iterdir()}
    assert there == made.keys()
    for name, body in made.items():
        assert seen(body) == seen((build.ROOT / name).read_bytes()), f"{name} is stale: make results"
