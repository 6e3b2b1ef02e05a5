"""The page in a real browser, opened from a file with the network off."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dst_lab.report import page
from dst_lab.store import Record, Store
from studies import PAPER

pytestmark = pytest.mark.slow
HOSTILE = '</script><img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="module")
def store(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = shutil.copy(everything, tmp_path_factory.mktemp("browser") / "planted.sqlite")
    config = {"task": HOSTILE, "estimator": {"name": HOSTILE}, "seed": 7, "dataset": "=1+1", "lr": 0.5}
    with Store.open(path, write=True) as opened:
        opened.put([Record(config=config, status="failed", provenance={"device_name": HOSTILE})])
    return path


@pytest.fixture(scope="module")
def html(store: Path) -> Path:
    with Store.open(store) as opened:
        out = store.with_suffix(".html")
        out.write_text(page(PAPER, PAPER.rows(opened, "quick")), encoding="utf-8")
    return out


@pytest.fixture
def visit(browser: Any, html: Path) -> Iterator[Callable[..., Any]]:
    """`visit(width=.., scheme=..)`: the page, offline; at the end nothing may have gone wrong in it."""
    contexts, wrong = [], []

    def go(width: int = 1440, scheme: str = "light", view: str = "") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        found = context.new_page()
        found.on(
            "console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None
        )
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
        found.goto(html.as_uri() + view)
        return found

    yield go
    for context in contexts:
        context.close()
    assert not wrong


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_nothing_lies_beyond_the_edge(visit: Callable[..., Any], width: int, scheme: str) -> None:
    found = visit(width, scheme)
    assert found.evaluate("document.documentElement.scrollWidth") <= width
    assert found.locator("svg.panel").first.bounding_box()["width"] <= width


def test_paper_has_the_evidence_and_no_controls(visit: Callable[..., Any]) -> None:
    found = visit()
    found.emulate_media(media="print")
    assert found.locator(".comparisons").first.is_visible()
    assert not found.locator(".contents").is_visible()


def test_a_link_opens_the_verdict_that_it_leads_to(visit: Callable[..., Any]) -> None:
    found = visit()
    assert not found.locator(".comparisons").first.is_visible()
    found.locator(".board a.badge").first.click()
    assert found.locator(".comparisons").first.is_visible()
    assert visit(view="#verdict-1").locator("#verdict-1").is_visible()


def test_hostile_text_is_text(visit: Callable[..., Any]) -> None:
    found = visit()
    assert HOSTILE in found.locator("#provenance").inner_text()
    assert found.evaluate("window.hacked") is None
