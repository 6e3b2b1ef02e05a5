"""The rules and figures of the study of convolutional logic networks, on planted records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dst_lab.figures import draw
from dst_lab.records import Rows
from dst_lab.store import Record, Series
from invented import put
from studies import CONVOLUTIONAL
from studies.convolutional.claims import SIZES, TASK


def run(net: str, dataset: str, seed: int, accuracy: float, seconds: float = 60.0, **fields: Any) -> Record:
    config = {"task": TASK, "estimator": {"name": "soft", "tau": 1.0}, "seed": seed, "net": net, "dataset": dataset}
    config |= {"steps": 100, "members": 1, "wiring": "structured", "anneal": 0.25} | fields
    history = {"test_accuracy": accuracy, "gates_simplified": 1e5}
    series = {name: Series(np.array([100]), np.array([value])) for name, value in history.items()}
    return Record(config=config, status="done", history=series, provenance={"seconds": seconds})


def published(off: float = 0.0, seconds: float = 60.0) -> Iterator[Record]:
    """Every judging run, its accuracies around the published one, plus `off` points."""
    for size in SIZES:
        for i in range(size.seeds):
            around = size.published + off + 0.5 * (i - (size.seeds - 1) / 2)
            yield run(size.net, f"{size.dataset}-whole", 2000 + i, around / 100, seconds)


@pytest.fixture
def rows(rows_at: Any, tmp_path: Path) -> Any:
    return lambda *records: rows_at(CONVOLUTIONAL, put(tmp_path / "runs.sqlite", *records))


def verdicts(rows: Rows) -> dict[str, str]:
    return {one.claim: one.verdict for one in CONVOLUTIONAL.judge(rows)}


@pytest.mark.parametrize(("off", "expected"), [(0.0, "supported"), (-0.01, "not supported")])
def test_the_mean_over_seeds_is_compared_with_the_published(rows: Any, off: float, expected: str) -> None:
    found = verdicts(rows(*published(off)))
    assert {found[f"L1 {size.net}"] for size in SIZES} == {expected}
    assert found["L2"] == "supported"


def test_a_run_of_ten_minutes_is_too_long(rows: Any) -> None:
    assert verdicts(rows(*published(seconds=600.0)))["L2"] == "not supported"


def test_explorations_ensembles_teachers_and_held_out_images_do_not_judge(rows: Any) -> None:
    size = SIZES[0]
    whole = f"{size.dataset}-whole"
    beside = [
        *(run(size.net, whole, seed, 0.99) for seed in range(100, 105)),
        *(run(size.net, size.dataset, 2000 + i, 0.99) for i in range(5)),
        run(size.net, whole, 2000, 0.99, members=5),
        *(run(size.net, whole, 2000 + i, 0.99, teacher=0.5) for i in range(5)),
        *(run(size.net, whole, 1000 + i, 0.99) for i in range(5)),
    ]
    every = rows(*beside)
    assert set(verdicts(every).values()) == {"not tested"}
    assert "5 of 5 runs of CIFAR-10 S" in CONVOLUTIONAL.judge(every)[0].missing


def test_the_figures_show_ours_beside_the_published(rows: Any) -> None:
    first = run("cifar10-s", "cifar10", 1, 0.59, steps=16_000)
    drawn = draw(CONVOLUTIONAL.figures, rows(first, *published()))
    gates, time = (drawn[f"convolutional-{name}"].figure.axes for name in ("gates", "time"))
    assert [ax.get_title(loc="left") for ax in gates] == ["CIFAR-10", "MNIST"]
    ours = {line.get_label(): line.get_xydata().tolist() for line in gates[0].lines}["ours"]
    assert ours == [[1e5, pytest.approx(60.38)], [1e5, pytest.approx(71.01)]]
    ours = {line.get_label(): line.get_xydata().tolist() for line in time[0].lines}["ours"]
    assert [1.0, pytest.approx(59.0)] in ours
    assert "S, 16,000 steps 59.00%" in drawn["convolutional-time"].caption
