"""What is committed under results/ of the paper's study follows from its records."""

import shutil
from pathlib import Path

import pytest
from drawings import seen
from dst_lab.figures import draw
from dst_lab.store import Store
from invented import put
from results import build
from studies import PAPER
from studies.paper.figures import FIGURES

COMMITTED = pytest.mark.skipif(
    not (build.ROOT / build.RECORDS).exists(), reason=f"{build.RECORDS} is not there: no full-scale results yet"
)


@pytest.fixture(scope="module")
def committed():
    with Store.open(build.ROOT / build.RECORDS) as store:
        yield build.Results(PAPER.rows(store, "paper"))


@COMMITTED
@pytest.mark.slow
def test_the_pages_quote_the_records(committed: build.Results) -> None:
    for name, text in build.pages(committed).items():
        assert (build.ROOT / name).read_text(encoding="utf-8") == text, f"{name} is stale: make results"


@COMMITTED
def test_the_records_are_small_enough_for_git() -> None:
    assert sum(file.stat().st_size for file in (build.ROOT / build.RECORDS).glob("*.sqlite.xz")) < 20e6


@COMMITTED
@pytest.mark.slow
def test_the_figures_are_those_of_the_records(committed: build.Results) -> None:
    made = build.figures(draw(FIGURES, committed.rows))
    there = {str(path.relative_to(build.ROOT)) for path in (build.ROOT / "lab/results/figures").iterdir()}
    assert there == made.keys()
    for name, body in made.items():
        assert seen(body) == seen((build.ROOT / name).read_bytes()), f"{name} is stale: make results"


@COMMITTED
@pytest.mark.slow
def test_a_number_changed_by_hand_is_put_right_and_the_rest_stays(committed: build.Results, tmp_path: Path) -> None:
    for name in build.PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build.ROOT / name, tmp_path / name)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    changed = text.replace("| Decoupled ST | ", "| Decoupled ST | 9", 1)
    assert changed != text
    (tmp_path / "README.md").write_text(f"{changed}By hand.\n", encoding="utf-8")
    assert build.pages(committed, tmp_path)["README.md"] == f"{text}By hand.\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- results:nothing -->\n<!-- /results -->", "unknown: nothing"),
        ("<!-- results:table -->\nno end", "1 beginnings, 0 whole blocks"),
        ("<!-- results:table -->\n<!-- results:runs -->\n<!-- /results -->", "2 beginnings, 1 whole blocks"),
    ],
)
def test_a_broken_block_is_named(text: str, said: str, tmp_path: Path) -> None:
    with (
        Store.open(put(tmp_path / "a.sqlite")) as store,
        pytest.raises(ValueError, match=f"a.md: a block begins with .*{said}"),
    ):
        build.filled(text, build.Results(PAPER.rows(store, "quick")), "a.md")


def test_every_block_of_the_pages_is_known_and_every_block_is_shown() -> None:
    used = {name for page in build.PAGES for _, name, _, _ in build.BLOCK.findall((build.ROOT / page).read_text())}
    assert used == build.BLOCKS.keys()
