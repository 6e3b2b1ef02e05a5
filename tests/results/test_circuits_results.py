"""The committed records of the study `circuits`: what its page says follows from them."""

import lzma
from pathlib import Path
from statistics import fmean

import pytest

import decoupled_st as dst
from dst_lab.store import Store
from dst_lab.studies import CIRCUITS
from dst_lab.studies.circuits import measured
from dst_lab.studies.circuits.recipes import RECIPES, SIZES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "circuits"
RECIPE = {"12k": "circuits-12k-short"}


def test_verdicts_and_every_run_of_the_recipes() -> None:
    with Store.open(FOLDER) as store:
        rows = CIRCUITS.rows(store, "paper")
        verdicts = {verdict.claim: verdict for verdict in CIRCUITS.judge(rows)}
        missing = [name for name in RECIPES.plans if rows.missing(name, "logic-gates")]
        paths = {store.provenance(run.id)["path"] for run in store.runs()}
    assert missing == ["circuits-12k", *(f"circuits-{name}" for name in list(SIZES)[1:])]
    assert paths == {"packed bits"}
    assert {verdict.verdict for verdict in verdicts.values()} == {"not tested"}


def test_the_docs_say_what_was_recorded_and_measured() -> None:
    page = (ROOT / "docs" / "circuits.md").read_text()
    with Store.open(FOLDER) as store:
        rows = CIRCUITS.rows(store, "paper")
        known = measured.read(rows)
        for name, size in SIZES.items():
            runs = rows.recipe(RECIPE.get(name, f"circuits-{name}"), "logic-gates", "test_accuracy_argmax")
            line = next(line for line in page.splitlines() if line.startswith(f"| {size.layers} x {size.width:,} |"))
            ours = 100 * fmean(row.last("test_accuracy_argmax") for row in runs)
            small = fmean(known[row.run.id].simplified for row in runs)
            assert f"| {size.published:.2f}% | **{ours:.2f}%**" in line
            assert f"| {len(runs)} | {size.steps:,} |" in line
            assert f"| {small:,.0f} of {size.gates:,} |" in line
            for row in runs:
                assert known[row.run.id].correct == round(10_000 * row.last("test_accuracy_argmax"))


def test_the_exported_circuit_is_the_measured_one(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_bytes(lzma.decompress((FOLDER / "cifar10-4x12000.json.xz").read_bytes()))
    circuit = dst.circuits.load(file)
    with Store.open(FOLDER) as store:
        found = measured.read(CIRCUITS.rows(store, "paper"))["e72ca9ce1e490852"]
    assert (len(circuit.gates), circuit.depth, circuit.inputs, circuit.classes) == (found.simplified, 4, 9216, 10)
    assert circuit.tau == pytest.approx(100 / 3)
    assert circuit.input_names[0] == "channel0.row0.column0>0.25"
