"""The page in a real browser, opened from a file with the network off."""

import csv
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import planted
import pytest
from dst_lab.figures.style import plus_minus
from dst_lab.records import field
from dst_lab.records.conditions import parse
from dst_lab.report import Study, page
from dst_lab.report.known import ANY, STUDIES
from dst_lab.store import Record, Series, Store, run_id
from matplotlib.image import imread
from studies import PAPER
from studies.paper.recipes import RECIPES

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
    return build(store, "quick")


@pytest.fixture
def visit(browser: Any, html: Path) -> Iterator[Callable[..., Any]]:
    """`visit(width=.., scheme=..)`: the page, offline; at the end nothing may have gone wrong in it."""
    contexts, wrong = [], []

    def go(width: int = 1440, scheme: str = "light", file: Path = html, view: str = "") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, reduced_motion="reduce"
        )
        contexts.append(context)
        found = context.new_page()
        found.on(
            "console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None
        )
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
        found.goto(file.as_uri() + view)
        return found

    yield go
    for context in contexts:
        context.close()
    assert not wrong


def build(path: Path, scale: str) -> Path:
    with Store.open(path) as opened:
        rows = PAPER.rows(opened, scale)
        out = path.with_suffix(".html")
        out.write_text(page(PAPER, rows), encoding="utf-8")
    return out


def losses(store: Path, tau_f: float, tau_b: float) -> Any:
    """The lowest validation losses of the grid's runs at a setting, from the store."""
    wanted = RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)
    at = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
    ids = [run_id(config.to_dict()) for config in wanted if config.estimator.to_dict() == at]
    with Store.open(store) as opened:
        return np.array([opened.history(run)["validation_loss"].values.min() for run in ids], float)


def test_the_pointer_reads_the_stores_number(visit: Callable[..., Any], store: Path) -> None:
    found = visit()
    found.locator('.cell[data-at="0.5,0.3"]').hover()
    values = losses(store, 0.5, 0.3)
    said = found.locator("#tip").inner_text()
    assert plus_minus(values) in said
    assert "n = 3" in said
    assert "τf = 0.5, τb = 0.3" in said
    assert plus_minus(values) in found.locator(".readout").inner_text()
    found.mouse.move(5, 5)
    assert found.locator("#tip").is_hidden()


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_the_page_of_every_study_runs_its_program_to_the_end(
    visit: Callable[..., Any], store: Path, tmp_path: Path, study: Study
) -> None:
    with Store.open(store) as opened:
        (tmp_path / "study.html").write_text(page(study, study.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "study.html")
    assert found.locator(".runs tbody tr").count() > 0
    assert found.locator(".cue").count() == found.locator(".scroll").count() > 0, "what the last part does"
    assert found.locator(".frame > .scroll").count() == found.locator(".scroll").count(), "a cue for each, at its table"


def test_a_click_pins_a_curve_beside_the_current_one(visit: Callable[..., Any]) -> None:
    found = visit()
    assert found.locator(".curve").count() == 1
    found.locator('.cell[data-at="2,2"]').click()
    found.locator('.cell[data-at="0.1,0.1"]').hover()
    shown = found.locator(".curve").evaluate_all("all => all.map((one) => one.dataset.at)")
    assert shown == ["2,2", "0.1,0.1"]
    lines = found.locator(".curve").evaluate_all("all => all.map((one) => one.getAttribute('stroke-dasharray'))")
    assert lines[0] != lines[1], "told apart without colour"
    found.locator(".pins button").click()
    assert found.locator(".curve").count() == 1


def test_the_map_answers_to_the_keyboard(visit: Callable[..., Any], store: Path) -> None:
    found = visit()
    found.locator('.cell[tabindex="0"]').focus()
    start = [float(tau) for tau in found.evaluate("document.activeElement.dataset.at").split(",")]
    assert found.locator('.cell[tabindex="0"]').count() == 1
    found.keyboard.press("ArrowRight")
    found.keyboard.press("ArrowDown")
    at = found.evaluate("document.activeElement.dataset.at")
    tau_f, tau_b = (float(tau) for tau in at.split(","))
    assert tau_f > start[0]
    assert tau_b < start[1]
    assert plus_minus(losses(store, tau_f, tau_b)) in found.locator(".readout").inner_text()
    found.keyboard.press("Enter")
    found.keyboard.press("ArrowRight")
    assert found.locator(".curve").evaluate_all("all => all.map((one) => one.dataset.at)")[0] == at
    for _ in range(30):  # to the edge, and no further
        found.keyboard.press("ArrowLeft")
    assert found.evaluate("document.activeElement.dataset.at").startswith("0,")


def test_every_map_and_measure_can_be_chosen(visit: Callable[..., Any]) -> None:
    found = visit()
    for task in range(3):
        found.locator(f'input[name="map-task"][value="{task}"]').check()
        for measure in range(found.locator('input[name="map-measure"]').count()):
            found.locator(f'input[name="map-measure"][value="{measure}"]').check()
            assert found.locator(".cell").count() > 5
            assert "NaN" not in found.locator("#explorer").inner_html()


def test_filter_and_sort(visit: Callable[..., Any], store: Path) -> None:
    found = visit()
    with Store.open(store) as opened:
        runs = opened.runs()
    assert found.locator(".count").inner_text() == f"{len(runs):,} of {len(runs):,} runs"
    assert found.locator(".runs tbody tr").count() == 50, "the rest is drawn when asked for"
    found.locator("#run-search").fill("stgs seed=2")
    assert found.locator(".count").inner_text().startswith("0 of")
    found.locator("#run-search").fill("binary estimator=softmax-ste seed=2 tau=0.5")
    wanted = [
        run
        for run in runs
        if run.task == "stochastic-binary" and run.config["estimator"] == {"name": "softmax_ste", "tau": 0.5}
    ]
    wanted = [run for run in wanted if run.seed == 2]
    assert found.locator(".runs tbody tr").count() == len(wanted) > 0
    found.locator("#run-search").fill("")
    found.locator("#run-task").select_option("autoencoder")
    found.get_by_role("button", name="Lowest val. loss").click()
    column = ".runs tbody tr td:nth-child(10)"
    with Store.open(store) as opened:
        mine = [run.id for run in runs if run.task == "categorical-autoencoder"]
        lowest = sorted(float(opened.history(run)["validation_loss"].values.min()) for run in mine)
    shown = [float(text) for text in found.locator(column).all_inner_texts()]
    assert shown == pytest.approx(lowest[:50], rel=1e-3)
    found.get_by_role("button", name="Lowest val. loss").click()
    shown = [float(text) for text in found.locator(column).all_inner_texts()]
    assert shown == pytest.approx(lowest[::-1][:50], rel=1e-3)
    assert found.locator('th[aria-sort="descending"]').inner_text().startswith("Lowest")


def test_the_search_box_speaks_the_language_of_where(visit: Callable[..., Any], store: Path) -> None:
    found = visit()
    with Store.open(store) as opened:
        runs = opened.runs()
    for words in (
        "tau_f<=0.3 seed>=1",
        "estimator=softmax-ste tau=0.50",
        "estimator.tau_b > 0.5 status!=failed",
        "task=stochastic-binary tau_b==0.3",
        "dataset=digits lr<1e-2 seed=1001",
        "hidden='[64, 64]'",
        "hidden=64,64",
        "hidden=[64,64] estimator.name=softmax-ste",
        "tau=none seed<2",
    ):
        found.locator("#run-search").fill(words)
        typed = words.replace(" > ", ">").replace("'[64, 64]'", "[64,_64]").split()
        conditions = parse(one.replace("_64", " 64") for one in typed)
        fits = [run for run in runs if all(one.holds(field(run, one.field)) for one in conditions)]
        assert found.locator(".count").inner_text().startswith(f"{len(fits):,} of"), words
        assert fits, words
    found.locator("#run-search").fill("tau_x<=0.3")
    assert found.locator(".wrong").inner_text() == "No run has the field tau_x."
    for words, told in (
        ("tau_f=>0.3", "A condition has one of the signs <= >= != == = < >, got tau_f=>0.3."),
        ("lr!=0,003", "Lr is a number in every run, got lr!=0,003."),
        ("seed=self", ""),
        ("optimiser!=Adam", "Every run would fit optimiser!=Adam, since none has this value."),
        ("hidden!=8,8", ""),
        ("status!=failed", ""),
        ("status!=Done", "Every run would fit status!=Done, since none has this value."),
    ):
        found.locator("#run-search").fill(words)
        assert found.locator(".wrong").inner_text() == told, words
    found.locator("#run-search").fill("hidden=[64, 64]")
    assert not found.locator(".count").inner_text().startswith("0 of")
    found.locator("#run-search").fill("tau_f<=low")
    assert found.locator(".wrong").inner_text() == "Sizes are compared with a number, got tau_f<=low."


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("2:0.1:linear", "2.0:0.1:linear"),
        ("2:0.1:linear:1", "2.0:0.1:linear"),
        ("2:.1:cosine:.5", "2.0:0.1:cosine:0.5"),
        ("self:share=.25:high=8.0", "self:high=8:share=0.25"),
        ("self", "self"),
    ],
)
def test_the_search_box_knows_a_schedule_or_a_rule_as_it_is_typed(
    visit: Callable[..., Any], typed: str, recorded: str
) -> None:
    found, (condition,) = visit(), parse([f"tau_b={typed}"])
    for value in (recorded, "2.0:0.2:linear", "2.0:0.1:linear:0.5", "self:high=8:share=0.5", "self:high=8"):
        assert found.evaluate("([value, text]) => equal(value, text)", [value, typed]) == (value == recorded), value
        assert condition.holds(value) == (value == recorded), value


def test_a_link_opens_the_same_view(visit: Callable[..., Any]) -> None:
    found = visit()
    found.locator("#verdict-0 > summary").click()
    found.locator("#verdict-0 button[data-claim]").click()
    found.locator("#run-search").fill("seed>=1002")
    found.locator("#run-estimator").select_option("Decoupled ST")
    for _ in range(2):
        found.locator(".runs th button", has_text="Seed").click()
    shown = [found.locator(".count").inner_text(), *found.locator(".runs tbody tr").all_inner_texts()]
    assert shown[0].startswith("8 of")
    address = found.locator(".address").get_attribute("href")
    again = visit(view=address)
    assert [again.locator(".count").inner_text(), *again.locator(".runs tbody tr").all_inner_texts()] == shown
    assert again.locator("#run-search").input_value() == "seed>=1002"


def test_figures_and_tables_can_be_taken_away(visit: Callable[..., Any], store: Path) -> None:
    found = visit()

    def download(name: str) -> bytes:
        with found.expect_download() as begun:
            found.get_by_role("button", name=f"Download {name}", exact=True).click()
        return Path(begun.value.path()).read_bytes()

    for name in ("network-curves as SVG", "temperature-map as SVG"):
        drawing = download(name).decode()
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in drawing, "it stands alone"
        assert drawing.count("<path") + drawing.count("<rect") > 25
    for name in ("network-curves as PNG", "training-curve as PNG"):
        picture = imread(io.BytesIO(download(name)))
        assert picture.shape[0] > 300
        assert picture.std() > 0.01, "not a blank sheet"
    rows = list(csv.reader(io.StringIO(download("verdicts as CSV").decode())))
    assert ["C1 Do the two temperatures want different values?", "supported"] in [[row[0], row[2][2:]] for row in rows]
    found.locator("#run-search").fill("seed=7")
    rows = list(csv.reader(io.StringIO(download("these runs as CSV").decode())))
    assert rows[0][:3] == ["run", "task", "estimator"]
    (hostile,) = [row for row in rows[1:] if row[1] == HOSTILE]
    assert hostile[rows[0].index("dataset")] == "'=1+1", "no spreadsheet takes it for a formula"


def test_a_table_is_taken_away_with_its_headings_above_its_columns(visit: Callable[..., Any]) -> None:
    """A heading that spans rows counts in each of them, and a Greek letter with its index is one word."""
    found = visit()

    def rows(name: str) -> list[list[str]]:
        with found.expect_download() as begun:
            found.get_by_role("button", name=f"Download {name} as CSV", exact=True).click()
        return list(csv.reader(io.StringIO(Path(begun.value.path()).read_text(encoding="utf-8"))))

    tasks, metrics, *results = rows("results")
    assert {len(row) for row in (tasks, metrics, *results)} == {len(tasks)}
    assert (tasks[0], metrics[0]) == ("Estimator", "")
    column = metrics.index("lowest validation loss (nats)", tasks.index("Binary network"))
    (ours,) = [row[column] for row in results if row[0] == "Decoupled ST"]
    shown = found.locator(".results tbody tr", has_text="Decoupled ST").first.locator("td").nth(column - 1)
    assert ours == shown.inner_text().replace("\n", "; ")
    titles = [row[1] for row in rows("verdicts")]
    assert "A higher τf uses more codes, and makes the gradient noisier" in titles
    assert not [title for title in titles if "τ;" in title]


def test_contents_stay_and_terms_are_explained(visit: Callable[..., Any]) -> None:
    found = visit()
    found.locator('.contents a[href="#figures"]').click()
    assert found.locator(".contents").bounding_box()["y"] == 0
    found.wait_for_selector('.contents a[aria-current][href="#figures"]')
    assert found.locator("#figures").bounding_box()["y"] >= 0, "the heading is below the contents"
    term = found.locator("#figures a.term", has_text="nats").first
    term.hover()
    assert "natural logarithms" in found.locator("#tip").inner_text()
    assert "natural logarithms" in found.locator("#term-nats").inner_text(), "and for paper"
    assert found.locator(".readings").first.is_hidden(), "other readings are folded"
    assert [one.get_attribute("href") for one in found.locator(".contents a").all()][:5] == [
        "#answer", "#verdicts", "#map", "#figures", "#readings",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", ["gumbel", "ST Gumbel", "ST-GS", "softmax_ste", "softmax-ste", "stochastic-binary", "softmax tau=0.50", ""]
)
def test_the_obvious_words_find_runs(visit: Callable[..., Any], words: str) -> None:
    found = visit()
    box = found.locator("#run-search")
    box.fill(words or box.get_attribute("placeholder").removeprefix("such as: "))
    assert not found.locator(".count").inner_text().startswith("0 of")
    assert found.locator(".runs tbody tr").count() > 0


def test_the_maps_words_fit_what_is_drawn(visit: Callable[..., Any]) -> None:
    found = visit()
    assert "diagonal" in found.locator(".keys").inner_text()
    found.locator('.cell[data-at="0.5,0.3"]').click()
    assert found.locator("#tip").is_visible()
    found.keyboard.press("ArrowRight")
    assert found.locator("#tip").is_hidden(), "it told of the cell under the pointer"
    found.locator('input[name="map-task"][value="1"]').check()
    assert "diagonal" not in found.locator(".keys").inner_text(), "none is drawn over two sweeps"


def test_a_mark_outside_the_map_is_told_and_not_drawn(visit: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    assert visit().locator("#explorer svg circle").count() == 2, "light on dark"
    study, file = replace(PAPER, reported={"stochastic-binary": (0.1, 9.0)}), tmp_path / "outside.html"
    with Store.open(store) as opened:
        file.write_text(page(study, study.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=file)
    assert found.locator("#explorer svg circle").count() == 0
    assert (
        "the paper\N{RIGHT SINGLE QUOTATION MARK}s optimum (0.1, 9) lies outside this map"
        in found.locator(".keys").inner_text()
    )
    assert "★ our optimum (" in found.locator(".keys").inner_text()


def test_no_diagonal_is_named_where_the_temperatures_are_nowhere_equal(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    history = {"validation_loss": Series(np.array([1]), np.array([1.0]))}
    with Store.open(tmp_path / "apart.sqlite", write=True) as opened:
        for tau_f, tau_b in product((0.1, 0.2, 0.3), (1.0, 2.0, 3.0)):
            estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
            config = {"task": "t", "estimator": estimator, "seed": 0, "lr": 0.1}
            opened.put([Record(config=config, status="done", history=history)])
        (tmp_path / "apart.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "apart.html")
    assert found.locator(".cell").count() == 9
    assert "diagonal" not in found.locator(".keys").inner_text()


def test_a_phone_shows_whole_comparisons_and_the_rates(visit: Callable[..., Any]) -> None:
    found = visit(390)
    found.locator("details.verdict > summary").first.click()
    table = found.locator(".comparisons").first
    assert table.locator("td[data-label=n]").first.is_visible()
    assert table.evaluate("one => one.getBoundingClientRect().right") <= 390
    assert table.evaluate("one => one.parentElement.scrollWidth <= one.parentElement.clientWidth")
    assert found.locator(".settings small.narrow").first.inner_text().startswith("lr ")
    settings = found.locator(".settings")
    assert settings.evaluate("one => one.parentElement.scrollWidth <= one.parentElement.clientWidth")
    (shares,) = [one for one in found.locator("details.verdict").all() if "converged runs" in one.text_content()]
    shares.locator("summary").first.click()
    assert shares.locator("td[data-label=n]").first.is_visible()
    assert shares.locator("td.middle").first.is_hidden(), "shares have no interval, and no effect"
    assert shares.locator("td[data-label=Effect]").first.is_hidden()


def test_a_comparison_is_read_without_scrolling(visit: Callable[..., Any]) -> None:
    """How many runs did not get there stood in one line with the mean, and the last columns beyond the edge."""
    found = visit()
    found.locator("details.verdict, .beside").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found.locator("td[data-label=Found], td[data-label=Against]").evaluate_all(
        "all => all.forEach((one) => { one.textContent = '40,250 steps (10 of 10 not there by the end)'; })"
    )
    tables = found.locator(".comparisons")
    wide = tables.evaluate_all("all => all.filter((one) => one.scrollWidth > one.parentElement.clientWidth).length")
    assert tables.count() > 10
    assert not wide


def test_the_maps_ticks_stand_clear_of_what_its_axis_is_called(visit: Callable[..., Any]) -> None:
    found = visit()
    for task in range(3):
        found.locator(f'input[name="map-task"][value="{task}"]').check()
        gap = found.evaluate(
            """() => { const texts = [...document.querySelectorAll("#explorer svg[role=grid] text")];
            const box = (one) => one.getBoundingClientRect();
            const name = texts.find((one) => one.textContent.includes("gradient"));
            const ticks = texts.filter((one) => one.getAttribute("text-anchor") === "end");
            return Math.min(...ticks.map((one) => box(one).left)) - box(name).right; }"""
        )
        assert gap >= 2, task


def test_diverged_cells_are_hatched_and_counted(visit: Callable[..., Any], tmp_path: Path) -> None:
    def record(config: Any) -> Record:
        taus = config.estimator.to_dict()
        at = (taus["tau_f"], taus["tau_b"])
        lost = at == (2.0, 0.1) or (at == (0.5, 0.3) and config.seed == 1)
        return replace(planted.record(config), status="diverged") if lost else planted.record(config)

    with Store.open(tmp_path / "lost.sqlite", write=True) as opened:
        opened.put(map(record, RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)))
    found = visit(file=build(tmp_path / "lost.sqlite", "quick"))
    assert found.locator(".hatched").count() == 2
    found.locator('.cell[data-at="0.5,0.3"]').hover()
    assert "(n = 2, 1 diverged)" in found.locator("#tip").inner_text()
    found.locator('.cell[data-at="2,0.1"]').hover()
    assert "no run ended" in found.locator("#tip").inner_text()
    assert "(n = 0, 3 diverged)" in found.locator("#tip").inner_text()


def test_a_run_opens_with_its_command(visit: Callable[..., Any]) -> None:
    found = visit()
    found.locator("#run-search").fill("decoupled seed=1001 binary")
    found.locator(".runs .open").first.press("Enter")
    said = found.locator(".detail").inner_text()
    assert "dst run stochastic-binary --scale quick --estimator decoupled --tau-f" in said
    assert "--seeds 1001, --store again.sqlite" in said
    assert found.locator(".runs .open").first.get_attribute("aria-expanded") == "true"


def test_a_verdict_leads_to_its_runs(visit: Callable[..., Any]) -> None:
    found = visit()
    found.locator('.board a[href="#verdict-0"]').click()
    found.wait_for_selector("#verdict-0[open]")
    found.locator("#verdict-0 button[data-claim]").click()
    assert found.locator(".count").inner_text().startswith("20 of"), "ten seeds a side"
    assert found.evaluate("document.activeElement.id") == "run-search"


def test_hostile_text_is_text(visit: Callable[..., Any]) -> None:
    found = visit()
    found.locator("#run-search").fill("onerror")
    assert HOSTILE in found.locator(".runs tbody tr").first.inner_text()
    found.locator(".runs .open").first.click()
    assert HOSTILE in found.locator(".detail").inner_text()
    assert found.locator("img").count() == 0
    assert found.evaluate("window.hacked") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_lies_beyond_the_edge(visit: Callable[..., Any], width: int, scheme: str) -> None:
    found = visit(width, scheme)
    for summary in found.locator("details.verdict > summary").all():
        summary.click()
    found.locator(".runs .open").first.click()
    found.locator(".badge").evaluate_all("all => all.forEach((one) => { one.textContent = '- not supported'; })")
    assert found.evaluate("document.documentElement.scrollWidth") == width
    found.locator(".fold").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # drawn anew
    for frame in found.locator(".frame:visible").all():
        wide = frame.locator(".scroll").first.evaluate("one => one.scrollWidth > one.clientWidth + 2")
        assert frame.locator("> .cue").is_visible() == wide, "a table that goes on says so"
    assert found.locator(".cue:visible").count() > 0
    paper, ink = (found.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    light, dark = (sum(map(int, value[4:-1].split(","))) for value in (paper, ink))
    assert (light > dark) == (scheme == "light")


def test_the_first_tab_skips_to_the_verdicts(visit: Callable[..., Any]) -> None:
    found = visit()
    found.keyboard.press("Tab")
    assert found.evaluate("document.activeElement.className") == "skip"
    assert found.locator(".skip").bounding_box()["x"] >= 0, "seen while it has the focus"
    found.keyboard.press("Enter")
    found.wait_for_function("document.activeElement.id === 'main'")


def test_paper_shows_the_maps_and_the_evidence(visit: Callable[..., Any]) -> None:
    found = visit(688, "dark")
    found.emulate_media(media="print")
    found.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert found.locator("#figure-map").is_visible()
    assert found.locator("#explorer").is_hidden()
    assert found.locator("#verdict-0 .rule").is_visible()
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for frame in found.locator(".scroll:visible").all():
        assert frame.evaluate("one => one.scrollWidth <= one.clientWidth + 1"), frame.inner_text()
    assert found.locator(".readings").count() == found.locator(".readings:visible").count() > 3
    assert found.pdf(format="A4").startswith(b"%PDF")


def test_six_thousand_runs_stay_quick_and_small(visit: Callable[..., Any], tmp_path: Path) -> None:
    path = planted.plant(tmp_path / "paper.sqlite", "paper")
    began = time.process_time()
    html = build(path, "paper")
    assert time.process_time() - began < 60
    assert html.stat().st_size < 8e6
    found = visit(file=html)
    took = found.evaluate(
        """() => { const box = document.getElementById("run-search"), began = performance.now();
        for (const words of ["softmax", "softmax seed=3", ""]) {
          box.value = words; box.dispatchEvent(new Event("input")); }
        document.querySelector(".runs th:nth-child(10) button").click();
        return performance.now() - began; }"""
    )
    assert took < 2000, "three searches and a sort, in milliseconds"
    assert found.locator(".count").inner_text().startswith("6,")


def test_a_store_of_ones_own_task_has_a_map_that_answers(visit: Callable[..., Any], tmp_path: Path) -> None:
    """A map without a search and without a reported optimum; one of its settings is far worse than all others."""
    pairs = [(tau_f, tau_b) for tau_f in (0.25, 0.5, 1.0) for tau_b in (0.5, 1.0, 2.0)]
    ends = {at: 2.0 + 0.01 * i for i, at in enumerate(pairs)} | {(1.0, 2.0): 60.0}
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for (tau_f, tau_b), end in ends.items():
            config = {"task": "vane", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}, "seed": 0}
            loss = Series(np.arange(1, 41), np.linspace(end + 1, end, 40))
            opened.put([Record(config={**config, "lr": 0.1}, status="done", history={"validation_loss": loss})])
        text = page(ANY, ANY.rows(opened, "quick"))
    (tmp_path / "own.html").write_text(text, encoding="utf-8")
    found = visit(file=tmp_path / "own.html")
    found.locator('.cell[data-at="0.5,2"]').hover()
    assert "2.050" in found.locator("#tip").inner_text()
    assert "τf = 0.5, τb = 2" in found.locator("#tip").inner_text()
    assert "optimum" not in found.locator("#explorer").inner_text()
    assert found.locator("#others h3").inner_text() == "Vane"
    assert found.locator("#others tbody tr").count() == 9
    assert found.locator("#runs tbody tr").count() == 9

    def state() -> tuple[list[str], str, int]:
        """The frame of the curve, the ends of the colours, and how many colours there are."""
        cells = found.locator(".cell").evaluate_all("all => all.map((one) => one.getAttribute('fill'))")
        ticks = found.locator(".explorer svg[role=img] .tick").all_text_contents()
        return ticks, found.locator(".legend").inner_text(), len(set(cells))

    ticks, legend, colours = state()
    assert "≥" in legend
    assert colours == 9, "close settings can be told apart"
    assert "validation loss" in found.locator(".explorer svg[role=img] text").all_text_contents()
    found.locator('.cell[data-at="0.25,0.5"]').click()
    found.locator('.cell[data-at="1,2"]').hover()
    assert state()[0] == ticks, "the frame stays while the pointer moves"
    assert "outside the frame" in found.locator(".pins").inner_text()
    found.locator('input[name="map-range"][value="1"]').check()
    whole = state()
    assert "≥" not in whole[1]
    assert whole[2] < 9
    assert whole[0] != ticks
    assert "outside the frame" not in found.locator(".pins").inner_text()


def test_the_map_and_the_table_round_a_mean_alike(visit: Callable[..., Any], tmp_path: Path) -> None:
    """3.05954 is 3.060 in four digits: by way of five, 3.0595, it was 3.059 on the map alone."""
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for tau_f, tau_b, seed in product((0.5, 1.0), (0.5, 1.0), (0, 1)):
            estimator = {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}
            config = {"task": "vane", "estimator": estimator, "seed": seed, "lr": 0.1}
            loss = Series(np.array([1, 2]), np.array([9.0, 3.05954 + 0.1 * (2 * seed - 1) + tau_f + tau_b - 1]))
            opened.put([Record(config=config, status="done", history={"validation_loss": loss})])
        (tmp_path / "own.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "own.html")
    found.locator('.cell[data-at="0.5,0.5"]').hover()
    said = plus_minus(np.array([2.95954, 3.15954]))
    assert said.startswith("3.060")
    assert said in found.locator("#others tbody tr").first.inner_text()
    assert said in found.locator("#tip").inner_text()


def test_the_map_opens_on_the_best_cell_without_runs_that_diverged(visit: Callable[..., Any], tmp_path: Path) -> None:
    """The mean of what is left of such a cell is no rival; a metric that is never a number has no colours."""
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for tau_f, tau_b, seed in product((0.5, 1.0), (0.5, 1.0, 2.0), (0, 1)):
            config = {"task": "vane", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}, "seed": seed}
            losses = [9.0, 0.1 if tau_b == 2.0 else tau_f + tau_b] + [8.0] * seed
            metrics = {"validation_loss": losses, "validation_auc": [np.nan] * 2}
            history = {name: Series(np.arange(1, len(of) + 1), np.array(of)) for name, of in metrics.items()}
            status = "diverged" if tau_b == 2.0 and seed else "done"
            opened.put([Record(config=config, status=status, history=history)])
        (tmp_path / "own.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "own.html")
    assert found.locator(".readout").inner_text().startswith("τf = 0.5, τb = 0.5: 1.000")
    assert "drawn with its last value from there on" in found.locator(".pins").inner_text()
    found.locator('input[name="map-measure"][value="1"]').check()
    assert found.locator(".legend").inner_text().endswith("not a number in any run")
    assert "Infinity" not in found.locator("#explorer").inner_html()


def test_a_map_of_losses_that_are_not_known_leaves_the_page_alive(visit: Callable[..., Any], tmp_path: Path) -> None:
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for tau_f, tau_b in product((0.5, 1.0), (0.5, 1.0)):
            config = {"task": "vane", "estimator": {"name": "decoupled", "tau_f": tau_f, "tau_b": tau_b}, "seed": 0}
            loss = Series(np.array([1, 2]), np.array([np.nan, np.nan]))
            opened.put([Record(config=config, status="done", history={"validation_loss": loss})])
        (tmp_path / "own.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "own.html")
    assert found.locator(".cell").count() == found.locator("#runs tbody tr").count() == 4


def test_numbers_side_by_side_do_not_touch_on_a_phone(visit: Callable[..., Any], tmp_path: Path) -> None:
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for lr in (0.1, 0.3):
            config = {"task": "vane", "estimator": {"name": "decoupled", "tau_f": 1.0}, "seed": 0, "lr": lr}
            loss = Series(np.array([1]), np.array([1000.0 + lr]))
            opened.put([Record(config=config, status="done", history={"validation_loss": loss})])
        (tmp_path / "own.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    row = visit(390, file=tmp_path / "own.html").locator("#others .settings tbody tr").first
    gap = row.evaluate(
        """one => { const [left, right] = [...one.querySelectorAll(".num")].map((cell) => getComputedStyle(cell));
        return parseFloat(left.paddingRight) + parseFloat(right.paddingLeft); }"""
    )
    assert gap >= 8


def test_the_parameters_of_an_objective_are_read_and_taken_away(visit: Callable[..., Any], tmp_path: Path) -> None:
    """They lie inside a field of the config, which was shown and downloaded as "[object Object]"."""
    with Store.open(tmp_path / "tuned.sqlite", write=True) as opened:
        for depth in (1, 3):
            config = {"task": "own", "objective": "f", "estimator": {"name": "decoupled", "tau_f": 1.0}, "seed": 12345}
            loss = Series(np.array([1]), np.array([float(depth)]))
            config["parameters"] = {"model.depth": depth, "act": "relu", "widths": [4, 2], "hidden": "128,128"}
            opened.put([Record(config=config, status="done", history={"validation_loss": loss})])
        (tmp_path / "tuned.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "tuned.html")
    found.locator("#run-search").fill("parameters.model.depth=3")
    found.locator(".runs .open").first.click()
    assert "parameters.model.depth\n3\n" in found.locator(".runs .detail").inner_text()
    with found.expect_download() as begun:
        found.get_by_role("button", name="Download these runs as CSV", exact=True).click()
    (row,) = csv.DictReader(io.StringIO(Path(begun.value.path()).read_text(encoding="utf-8")))
    assert [row[f"parameters.{name}"] for name in ("model.depth", "act", "widths")] == ["3", "relu", "[4, 2]"]
    assert [row[name] for name in ("parameters.hidden", "seed")] == ["128,128", "12345"]
    assert "12345" in found.locator(".runs tbody tr").first.inner_text()


def test_a_field_that_is_called_like_something_else_of_a_run_is_both(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Found by the name that `dst show` has for it, and shown and taken away beside the other, as it is."""
    with Store.open(tmp_path / "own.sqlite", write=True) as opened:
        for status in ("cold", "warm"):
            config = {"task": "toy", "estimator": {"name": "decoupled", "tau_f": 1.0}, "seed": 0, "sizes": "2,4"}
            loss = Series(np.array([1]), np.array([1.0]))
            config |= {"status": status, "plan": "b", "run": 7}
            opened.put([Record(config=config, status="done", history={"validation_loss": loss})])
        (tmp_path / "own.html").write_text(page(ANY, ANY.rows(opened, "quick")), encoding="utf-8")
    found = visit(file=tmp_path / "own.html")
    found.locator("#run-search").fill("config.status=warm status=done")
    assert found.locator(".count").inner_text().startswith("1 of 2")
    found.locator(".runs .open").first.click()
    for pair in ("status\ndone\n", "config.status\nwarm\n", "config.plan\nb\n", "config.run\n7\n"):
        assert pair in found.locator(".runs .detail").inner_text()
    with found.expect_download() as begun:
        found.get_by_role("button", name="Download these runs as CSV", exact=True).click()
    (row,) = csv.DictReader(io.StringIO(Path(begun.value.path()).read_text(encoding="utf-8")))
    assert [row[name] for name in ("status", "config.status", "config.run", "sizes")] == ["done", "warm", "7", "2,4"]
