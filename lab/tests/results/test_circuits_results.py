"""The committed records of the study `circuits`: what its page says follows from them."""

import lzma
from pathlib import Path
from statistics import fmean

import pytest
from dst_lab.store import Store
from studies import CIRCUITS
from studies.circuits import measured
from studies.circuits.recipes import RECIPES, SIZES

import decoupled_st as dst

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "results" / "circuits"


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
        known = measured.read(rows)
        for name, size in SIZES.items():
            runs = rows.recipe(f"circuits-{name}", "logic-gates", "test_accuracy_argmax")
            line = next(line for line in page.splitlines() if line.startswith(f"| {size.layers} x {size.width:,} |"))
            correct = [round(10_000 * row.last("test_accuracy_argmax")) for row in runs]
            low, ours, high = (f"{number / 100:.2f}" for number in (min(correct), fmean(correct), max(correct)))
            assert f"| {size.published:.2f}% | **{ours}%** ({low} to {high}) | {len(runs)} |" in line
            assert {row.run.config["steps"] for row in runs} == {int(line.split("|")[6].replace(",", ""))}
            circuits = [known[row.run.id] for row in runs if row.run.id in known]
            small = fmean(circuit.simplified for circuit in circuits)
            assert f"| {small:,.0f} of {size.gates:,} |" in line
            assert len(circuits) == (5 if name == "12k" else 1)
            by_run = dict(zip((row.run.id for row in runs), correct, strict=True))
            assert all(circuit.correct == by_run[circuit.run] for circuit in circuits)


def test_the_exported_circuit_is_the_measured_one(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_bytes(lzma.decompress((FOLDER / "cifar10-4x12000.json.xz").read_bytes()))
    circuit = dst.circuits.load(file)
    with Store.open(FOLDER) as store:
        found = measured.read(CIRCUITS.rows(store, "paper"))["e72ca9ce1e490852"]
    assert (len(circuit.gates), circuit.depth, circuit.inputs, circuit.classes) == (found.simplified, 4, 9216, 10)
    assert circuit.tau == pytest.approx(100 / 3)
    assert circuit.input_names[0] == "channel0.row0.column0>0.25"
