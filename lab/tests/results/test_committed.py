"""The committed records: their runs are known by their ids, and pages and figures follow from them."""

import csv
import lzma
import re
from pathlib import Path
from statistics import fmean

import pytest
from drawings import seen
from dst_lab.runs import CONFIGS
from dst_lab.store import Store, run_id
from results import build, codebook_tables, compared, convolutional_tables, diffusion_tables, self_set
from results.quoted import Quoted
from studies import CIRCUITS
from studies.circuits.recipes import RECIPES, SIZES

import decoupled_st as dst

SLICES = sorted((Path(__file__).parents[2] / "results").rglob("*.sqlite.xz"))


def test_there_are_committed_records_of_every_study() -> None:
    assert {path.parent.name for path in SLICES} >= {"circuits", "estimators", "paper", "temperatures"}


@pytest.mark.parametrize("path", SLICES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_committed_records_are_read_as_the_runs_that_they_are(path) -> None:
    with Store.open(path) as store:
        runs = store.runs()
    assert runs
    for run in runs:
        config = CONFIGS[run.task].from_dict(run.config)
        assert (run_id(config.to_dict()), config.to_dict()) == (run.id, run.config)


ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "results" / "circuits"


def measured() -> dict[str, dict[str, str]]:
    """The numbers of each network as a circuit, by run, as `results.measure_circuits` wrote them."""
    with (FOLDER / "circuits.csv").open(newline="") as file:
        return {line["run"]: line for line in csv.DictReader(file)}


def test_verdicts_and_every_run_of_the_recipes() -> None:
    with Store.open(FOLDER) as store:
        rows = CIRCUITS.rows(store, "paper")
        verdicts = {verdict.claim: verdict for verdict in CIRCUITS.judge(rows)}
        missing = [name for name in RECIPES.plans if rows.missing(name, "logic-gates")]
        paths = {store.provenance(run.id)["path"] for run in store.runs()}
    assert missing == []
    assert paths == {"packed bits"}
    assert {verdict.verdict for verdict in verdicts.values()} == {"supported"}


def test_the_docs_say_what_was_recorded_and_measured() -> None:
    page = (ROOT / "docs" / "circuits.md").read_text()
    with Store.open(FOLDER) as store:
        rows = CIRCUITS.rows(store, "paper")
        known = measured()
        for name, size in SIZES.items():
            runs = rows.recipe(f"circuits-{name}", "logic-gates", "test_accuracy_argmax")
            line = next(line for line in page.splitlines() if line.startswith(f"| {size.layers} x {size.width:,} |"))
            correct = [round(10_000 * row.last("test_accuracy_argmax")) for row in runs]
            low, ours, high = (f"{number / 100:.2f}" for number in (min(correct), fmean(correct), max(correct)))
            assert f"| {size.published:.2f}% | **{ours}%** ({low} to {high}) | {len(runs)} |" in line
            assert {row.run.config["steps"] for row in runs} == {int(line.split("|")[6].replace(",", ""))}
            circuits = {row.run.id: known[row.run.id] for row in runs if row.run.id in known}
            small = fmean(int(circuit["simplified"]) for circuit in circuits.values())
            assert f"| {small:,.0f} of {size.gates:,} |" in line
            assert len(circuits) == (5 if name == "12k" else 1)
            by_run = dict(zip((row.run.id for row in runs), correct, strict=True))
            assert all(int(circuit["correct"]) == by_run[run] for run, circuit in circuits.items())


def test_the_exported_circuit_is_the_measured_one(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_bytes(lzma.decompress((FOLDER / "cifar10-4x12000.json.xz").read_bytes()))
    circuit = dst.circuits.load(file)
    gates = int(measured()["e72ca9ce1e490852"]["simplified"])
    assert (len(circuit.gates), circuit.depth, circuit.inputs, circuit.classes) == (gates, 4, 9216, 10)
    assert circuit.tau == pytest.approx(100 / 3)
    assert circuit.input_names[0] == "channel0.row0.column0>0.25"


PAGE = (ROOT / "docs" / "convolutional.md").read_text()
Row = dict[str, str]


def runs(**wanted: str) -> list[Row]:
    with (ROOT / "lab" / "results" / "convolutional" / "runs.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]


def test_soft_and_hard_and_wiring() -> None:
    def validation(**wanted: str) -> str:
        (row,) = runs(net="cifar10-s", **wanted)
        return f"{100 * float(row['history.validation_accuracy']):.1f}%"

    short = {"steps": "8000", "lr": "0.02", "anneal": "0.0", "wiring": "structured"}
    assert f"S has {validation(estimator='soft', **short)} of the validation images by soft gates" in PAGE
    assert f"{validation(estimator='soft', **short | {'anneal': '0.25'})} with the last quarter" in PAGE
    hard = {"estimator": "decoupled", "estimator.tau_b": "2.0", **short}
    assert f"{validation(**hard, **{'estimator.tau_f': '0.0'})} by argmax from the start" in PAGE
    assert f"{validation(**hard, **{'estimator.tau_f': '0.1'})} by drawn gates" in PAGE
    long = {"steps": "16000", "seed": "1", "wiring": "structured"}
    soft, hard_end = (validation(estimator="soft", anneal=share, **long) for share in ("0.0", "0.25"))
    assert f"are level: {soft} of the validation images" in PAGE
    assert f"against {hard_end}" in " ".join(PAGE.split())
    assert f"by argmax from the start {validation(estimator='decoupled', **long)}" in PAGE


def test_step_times() -> None:
    with (ROOT / "benchmarks" / "results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == "logic-conv" and "H200" in row["device"]]
    for name, net in (("CIFAR-10 S", "cifar10-s"), ("CIFAR-10 M", "cifar10-m"), ("MNIST S", "mnist-s")):
        cells = []
        for way in ("soft", "argmax"):
            of = [row for row in rows if row["size"].startswith(net) and row["what"].startswith(way)]
            cells.append(" and ".join(dict.fromkeys(f"{float(row['p50_ms']):.2f}" for row in of)) + " ms")
        assert f"| {name} | {' | '.join(cells)} |" in PAGE


MADE = (codebook_tables, compared, convolutional_tables, self_set, diffusion_tables)
ALL = {made.QUOTED.study.name: made.QUOTED for made in MADE}


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
