"""The committed runs of convolutional logic networks: what their page says follows from them."""

import csv
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "convolutional.md").read_text()
Row = dict[str, str]


def runs(**wanted: str) -> list[Row]:
    with (ROOT / "lab" / "results" / "convolutional" / "runs.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.parametrize(
    ("name", "net", "data", "seeds"),
    [
        ("CIFAR-10 S", "cifar10-s", "cifar10", 5),
        ("CIFAR-10 M", "cifar10-m", "cifar10", 1),
        ("MNIST S", "mnist-s", "mnist", 3),
        ("Fashion-MNIST, MNIST's S, 3 thresholds", "mnist-s", "fashion-mnist", 3),
    ],
)
def test_the_table_of_accuracies(name: str, net: str, data: str, seeds: int) -> None:
    rows = runs(net=net, data=data, test="1", gates="soft", anneal="0.25", wiring="structured")
    accuracies = [100 * float(row["test_accuracy"]) for row in rows]
    assert sorted(row["seed"] for row in rows) == [str(seed + 1) for seed in range(seeds)]
    spread = f": {min(accuracies):.2f} to {max(accuracies):.2f}" if seeds > 1 else ""
    (steps,) = {int(row["steps"]) for row in rows}
    assert f"| {name} | {fmean(accuracies):.2f} ({seeds}{spread}) | {steps:,} |" in PAGE


def test_soft_and_hard_and_wiring() -> None:
    def validation(**wanted: str) -> str:
        (row,) = runs(net="cifar10-s", **wanted)
        return f"{100 * float(row['validation']):.1f}%"

    short = {"steps": "8000", "lr": "0.02", "anneal": "0.0", "wiring": "structured"}
    assert f"S has {validation(gates='soft', **short)} of the validation images by soft gates" in PAGE
    assert f"{validation(gates='soft', **short | {'anneal': '0.25'})} with the last quarter" in PAGE
    assert f"{validation(gates='argmax', tau_b='2.0', **short)} by argmax from the start" in PAGE
    assert f"{validation(gates='drawn', **short)} by drawn gates" in PAGE
    long = {"steps": "16000", "seed": "1", "wiring": "structured"}
    soft, hard = validation(gates="soft", anneal="0.0", **long), validation(gates="soft", anneal="0.25", **long)
    assert f"are level: {soft} of the validation images" in PAGE
    assert f"against {hard}" in " ".join(PAGE.split())
    assert f"by argmax from the start {validation(gates='argmax', **long)}" in PAGE


def test_step_times() -> None:
    with (ROOT / "benchmarks" / "results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == "logic-conv" and "H200" in row["device"]]
    for name, net in (("CIFAR-10 S", "cifar10-s"), ("CIFAR-10 M", "cifar10-m"), ("MNIST S", "mnist-s")):
        soft, hard = (
            next(float(row["p50_ms"]) for row in rows if row["size"].startswith(net) and row["what"].startswith(way))
            for way in ("soft", "argmax")
        )
        assert f"| {name} | {soft:.2f} ms | {hard:.2f} ms |" in PAGE
