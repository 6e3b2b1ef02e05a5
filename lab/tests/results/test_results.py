"""What is committed under results/ follows from its records; and the machinery that makes it, on a planted store."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
from drawings import seen
from dst_lab.figures import draw
from dst_lab.records import pursue
from dst_lab.store import Record, Store
from results import build, cost
from studies import PAPER
from studies.paper.figures import FIGURES

COMMITTED = pytest.mark.skipif(
    not (build.ROOT / build.RECORDS).exists(), reason=f"{build.RECORDS} is not there: no full-scale results yet"
)
STEP_MS = {"stochastic-binary": 2.0, "categorical-autoencoder": 3.0}


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


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planted store in which chunks of 50 runs took 10 seconds each, some runs diverged and one failed."""
    path = tmp_path_factory.mktemp("planted") / "runs.sqlite"
    names = ("sbn-grid", "sbn-baselines", "catae-sequential", "catae-baselines", "diagonal", "bias-variance", "confirm")
    with Store.open(path, write=True) as store:
        for name in names:

            def train(configs, _, name=name):
                by_task = {task: [one for one in configs if one.task == task] for task in planted.HISTORIES}
                chunks = [part[i : i + 50] for part in by_task.values() for i in range(0, len(part), 50)]
                for number, chunk in enumerate(chunks):
                    store.put([trained(planted.record(config), name, number) for config in chunk])
                return True

            pursue(planted.RECIPES.plans[name]("quick"), store, train)
        failed = planted.record(planted.RECIPES.plans["logic-sequential"]("quick").wanted(lambda _: None)[0])
        store.put([Record(config=failed.config, status="failed", detail={"step": 7}, provenance=planted.PROVENANCE)])
    return path


def trained(record: Record, recipe: str, chunk: int) -> Record:
    place = {**planted.PROVENANCE, "device": "cuda", "device_name": "NVIDIA H200", "seconds": 10.0}
    place |= {
        "started": f"2026-01-0{1 + chunk % 3}T10:00:00Z",
        "ended": "2026-01-05T10:00:00Z",
        "of": f"{recipe} {chunk}",
    }
    hot = record.config["estimator"].get("tau_f") == 2.0 and record.config["task"] == "stochastic-binary"
    if hot:
        return replace(record, status="diverged", detail={"step": 100}, history={}, artefacts={}, provenance=place)
    return replace(record, provenance=place)


@pytest.fixture
def root(plain: Path, tmp_path: Path) -> Path:
    """A checkout with the planted records, compressed, and our pages."""
    for name in (*build.PAGES, "benchmarks/results.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build.ROOT / name, tmp_path / name)
    with Store.open(plain) as store:
        (tmp_path / build.RECORDS).mkdir()
        store.copy(tmp_path / build.RECORDS / "0001.sqlite.xz")
    return tmp_path


@pytest.mark.slow
def test_all_is_built_from_the_compressed_records(root: Path) -> None:
    written = {str(file.relative_to(root)) for file in build.build(root)}
    drawings = {f"lab/results/figures/{name}.svg" for name in FIGURES}
    assert written == {build.REPORT, *drawings, *build.PAGES}
    assert "Two temperatures instead of one" in (root / "lab/results/report.html").read_text()
    assert (root / "lab/results/figures/map.svg").read_text().count("<path") > 50


def test_the_pages_are_filled_and_what_is_written_by_hand_stays(root: Path) -> None:
    (root / "lab/results/paper/sessions.csv").write_text("date,what,wall_s\n2026-01-01,dst,60\n2026-01-02,dst,120.5\n")
    before = {name: (root / name).read_text() for name in build.PAGES}
    with Store.open(root / build.RECORDS) as store:
        results = build.Results(PAPER.rows(store, "quick"), root)
        made = build.pages(results, root)
        for name, text in made.items():
            assert build.BLOCK.sub("", text) == build.BLOCK.sub("", before[name])
            (root / name).write_text(text)
        assert build.pages(results, root) == made, "filled again, nothing changes"
        (root / "README.md").write_text(made["README.md"].replace("| Decoupled ST | **", "| Decoupled ST | **9"))
        assert build.pages(results, root) == made, "a number changed by hand is put right"
    readme = made["lab/results/README.md"]
    assert "| **all** |" in readme
    assert "| when | 2026-01-01 and 2026-01-05 |" in readme
    assert "| on | NVIDIA H200 and 2 CPU cores |" in readme
    assert "The device was in use for 3.01 minutes, in 2 sessions" in readme
    assert "](lab/results/figures/map.svg)\n\nEach cell: mean over n = 3 search seeds." in made["README.md"]


def test_the_numbers_are_those_of_the_records(root: Path) -> None:
    with Store.open(root / build.RECORDS) as store:
        results = build.Results(PAPER.rows(store, "quick"), root)
        setting = results.rows.setting("stochastic-binary", "softmax_ste")
        assert setting is not None
        values = [100 * float(store.history(row.run.id)["test_accuracy"].values[-1]) for row in setting.rows]
        assert len(values) == 10
        cells = [line.split("|") for line in build.headline(results, "").splitlines() if "Softmax STE" in line]
        assert cells[0][2].strip() == f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
        (note,) = (one.notes[0] for one in results.verdicts if one.claim == "C2 convergence")
        mark = float(note.split()[2].rstrip(","))  # "converged: below 14.2, between .."
        for role, cell in zip(build.ROLES, build.headline(results, "").splitlines()[2:], strict=True):
            setting = results.rows.setting("categorical-autoencoder", role)
            assert setting is not None
            ends = [float(store.history(row.run.id)["validation_loss"].values[-1]) for row in setting.rows]
            assert cell.endswith(f"; {sum(end < mark for end in ends)} of 10 converge |")
        lines = build.verdicts(results, "").splitlines()
        assert lines[2].endswith("| ✓ supported | ✓ supported | ? not tested |")
        assert len(build.evidence(results, "").splitlines()) > 30
        assert "tau_f = 2, tau_b = 0.5 (the paper: 2, 0.5) | 0.002 |" in build.settings(results, "")


def test_a_chunk_counts_once_and_a_run_for_what_it_was_trained(plain: Path) -> None:
    with Store.open(plain) as store:
        rows = PAPER.rows(store, "quick")
        found = {one.recipe: one for one in cost.costs(rows, STEP_MS)}
        whole = cost.total(list(found.values()))
        assert whole.runs == len(store.runs())
        chunks = {run.provenance_id for run in store.runs() if run.status != "failed"}
        assert whole.seconds == pytest.approx(10.0 * len(chunks) + 120.0)
        grid = found["sbn-grid"]
        assert (grid.runs, grid.seconds, grid.ends["diverged"]) == (60, pytest.approx(20.0), 12)
        steps = 12 * (1024 // 64)
        assert grid.plain == pytest.approx(0.002 * (48 * steps + 12 * 100))
        assert found["bias-variance"].plain == 0
        assert found["bias-variance"].unmeasured == found["bias-variance"].runs == 75
        assert whole.unmeasured == len(store.runs(task="bias-variance")) + len(store.runs(task="logic-gates"))
        assert found["diagonal"].compared == pytest.approx(found["diagonal"].seconds - 10.0), (
            "its one chunk of logic gates"
        )
        earlier = {*rows.wanted("sbn-baselines"), *rows.wanted("catae-baselines")}
        shared = earlier & {*rows.wanted("diagonal")}
        assert len(shared) == 15
        assert found["diagonal"].runs == len(rows.wanted("diagonal")) - 15, "a run that two want counts once"
        assert found["logic-sequential"].ends["failed"] == 1


def test_what_goes_beyond_the_paper_is_counted_apart(root: Path) -> None:
    assert {*cost.BEYOND} - {cost.OTHER} == {
        name for name, recipe in planted.RECIPES.plans.items() if "beyond the paper" in str(recipe.__doc__).lower()
    }
    with Store.open(root / build.RECORDS) as store:
        results = build.Results(PAPER.rows(store, "quick"), root)
        minutes = {one.recipe: one.seconds / 60 for one in results.costs}
        beyond = sum(time for name, time in minutes.items() if name in cost.BEYOND)
        took, more = re.findall(r"took ([\d.]+)", build.time(results, ""))
        assert float(took) == pytest.approx(sum(minutes.values()) - beyond, rel=0.01)
        assert float(more) == pytest.approx(beyond, rel=0.01)
        assert beyond > 0


def test_a_chunk_of_two_recipes_is_shared(tmp_path: Path) -> None:
    """The effects of both temperatures on the autoencoder, trained together."""
    both = [planted.RECIPES.plans[name]("quick").wanted(lambda _: None) for name in ("tau-f-effects", "tau-b-effects")]
    configs = dict.fromkeys(one for wanted in both for one in wanted if one.task == "categorical-autoencoder")
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        store.put([trained(planted.record(config), "both", 0) for config in configs])
        found = cost.costs(PAPER.rows(store, "quick"), STEP_MS)
    assert {one.recipe: one.runs for one in found} == {"tau-f-effects": 40, "tau-b-effects": len(configs) - 40}
    assert found[0].seconds == pytest.approx(10.0 * 40 / len(configs))
    assert sum(one.seconds for one in found) == pytest.approx(10.0)


def test_plain_steps_are_those_of_the_device() -> None:
    steps = cost.plain_steps(build.ROOT / "benchmarks/results.csv", "NVIDIA H200")
    assert steps.keys() == cost.PLAIN.keys()
    assert all(0.1 < ms < 100 for ms in steps.values())
    assert cost.plain_steps(build.ROOT / "benchmarks/results.csv", "a device that nobody has") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- results:nothing -->\n<!-- /results -->", "unknown: nothing"),
        ("<!-- results:table -->\nno end", "1 beginnings, 0 whole blocks"),
        ("<!-- results:table -->\n<!-- results:runs -->\n<!-- /results -->", "2 beginnings, 1 whole blocks"),
    ],
)
def test_a_broken_block_is_named(text: str, said: str, plain: Path) -> None:
    with Store.open(plain) as store, pytest.raises(ValueError, match=f"a.md: a block begins with .*{said}"):
        build.filled(text, build.Results(PAPER.rows(store, "quick")), "a.md")


def test_every_block_of_the_pages_is_known_and_every_block_is_shown() -> None:
    used = {name for page in build.PAGES for _, name, _, _ in build.BLOCK.findall((build.ROOT / page).read_text())}
    assert used == build.BLOCKS.keys()
