"""The page in a real browser, opened from a file with the network off."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import planted
import pytest
from dst_lab.report import page
from dst_lab.store import Record, Store
from studies import PAPER

pytestmark = pytest.mark.slow
HOSTILE = '</script><img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = planted.plant(tmp_path_factory.mktemp("browser") / "planted.sqlite")
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


def test_runs_are_filtered_by_words_and_sorted_by_a_column(visit: Callable[..., Any], store: Path) -> None:
    with Store.open(store) as opened:
        runs = opened.runs()
        lowest = {
            run.id: opened.history(run.id)["validation_loss"].values.min() for run in runs if run.status == "done"
        }
    found = visit()
    assert f"{len(runs):,} of {len(runs):,} runs" in found.locator(".count").inner_text()
    found.fill("#run-search", "gumbel binary tau=0.5 seed=1000")
    wanted = [
        run
        for run in runs
        if (run.task, run.estimator, run.seed) == ("stochastic-binary", "gumbel_ste", 1000)
        and run.config["estimator"]["tau"] == 0.5
    ]
    shown = found.locator("#table tbody tr")
    assert shown.count() == len(wanted) > 0
    assert {shown.nth(i).get_attribute("data-run") for i in range(shown.count())} == {run.id for run in wanted}
    found.fill("#run-search", "stochastic-binary seed=0")
    head = found.get_by_role("button", name="Lowest val. loss")
    for descending in (False, True):
        head.click()
        ids = [shown.nth(i).get_attribute("data-run") for i in range(shown.count())]
        assert ids == sorted(ids, key=lambda run: lowest[run], reverse=descending)
    found.fill("#run-search", "nothing-like-this")
    assert shown.count() == 0


def test_a_run_opens_with_its_command_and_a_verdict_leads_to_its_runs(visit: Callable[..., Any]) -> None:
    found = visit(view="#verdict-0")
    assert found.locator("#verdict-0").get_attribute("open") is not None, "what is linked to is open"
    button = found.locator("#verdict-0 button[data-claim]")
    count = int("".join(filter(str.isdigit, button.inner_text())))
    button.click()
    assert found.locator(".count").inner_text().startswith(f"{count} of ")
    found.locator("#table .open").first.click()
    said = found.locator("#table tr.detail").inner_text()
    assert "dst run stochastic-binary --scale quick --estimator decoupled --tau-f" in said
    assert "last test loss" in said
    found.locator(".count button").click()
    total, _, every = found.locator(".count").inner_text().partition(" of ")
    assert f"{total} runs" == every, "all of them again"


def test_hostile_text_is_text(visit: Callable[..., Any]) -> None:
    found = visit()
    found.fill("#run-search", "failed")
    found.locator("#table .open").first.click()
    assert HOSTILE in found.locator("#table tbody").inner_text()
    assert found.evaluate("window.hacked") is None


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_nothing_lies_beyond_the_edge(visit: Callable[..., Any], width: int, scheme: str) -> None:
    found = visit(width, scheme)
    assert found.evaluate("document.documentElement.scrollWidth") <= width
    assert found.locator("svg.panel").first.bounding_box()["width"] <= width


def test_paper_has_the_evidence_and_no_controls(visit: Callable[..., Any]) -> None:
    found = visit()
    found.emulate_media(media="print")
    found.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert found.locator("details.verdict:not([open])").count() == 0
    assert found.locator(".comparisons").first.is_visible()
    assert not found.locator("#run-search").is_visible()
