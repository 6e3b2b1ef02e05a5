"""The script that trains convolutional logic networks, and their teacher, on a stand-in for CIFAR-10."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dst_lab.data import bits, levels

SCRIPTS = Path(__file__).parents[2] / "results" / "convolutional"
TINY = "batch=4,steps=4,seed=3,anneal=0.5"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`scripts(name)`: a module of the folder, which the others there import by its bare name."""
    monkeypatch.syspath_prepend(SCRIPTS)
    for name in ("images", "teacher", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in ("images", "teacher", "train"):
        sys.modules.pop(name, None)


def test_a_teacher_is_trained_and_saved_and_supervises(scripts: Any, tiny_cifar: Any, tmp_path: Path) -> None:
    data = ["--data", str(tiny_cifar.write(tmp_path))]
    saved, table = tmp_path / "teacher.pt", tmp_path / "runs.csv"
    scripts("teacher").main([*data, "--out", str(saved), "--held-out", "6", "--epochs", "2", "--batch", "3"])
    specs = [f"{TINY},held_out=6{spec}" for spec in ("", ",edges=1", ",teacher=0.5", ",edges=1,teacher=0.5")]
    scripts("train").main([*data, "--out", str(table), "--teacher", str(saved), *specs])
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["edges"], row["teacher"], row["teacher_tau"]) for row in rows] == [
        ("", "", ""),
        ("1", "", ""),
        ("", "0.5", "2.0"),
        ("1", "0.5", "2.0"),
    ]
    assert all(0 <= float(row["history.validation_accuracy"]) <= 1 for row in rows)


def test_a_teacher_of_other_images_is_refused(scripts: Any, tiny_cifar: Any, tmp_path: Path) -> None:
    data, saved = tiny_cifar.write(tmp_path), tmp_path / "teacher.pt"
    teacher = scripts("teacher")
    teacher.main(["--data", str(data), "--out", str(saved), "--epochs", "1", "--batch", "11"])
    assert not any(p.requires_grad for p in teacher.load(saved, "cifar10", 0).parameters())
    with pytest.raises(ValueError, match=r"has learned from \('cifar10', 0\), not from \('cifar10', 6\)"):
        teacher.load(saved, "cifar10", 6)


def test_the_teachers_share_of_the_loss(scripts: Any) -> None:
    scores, taught = torch.randn(5, 10, dtype=torch.float64), torch.randn(5, 10, dtype=torch.float64)
    p, q = (taught / 3).softmax(-1), (scores / 3).softmax(-1)
    assert scripts("train").divergence(scores, taught, 3.0) == pytest.approx(float(9 * (p * (p / q).log()).sum() / 5))


@pytest.mark.parametrize("thresholds", [1, 3, 4, 31])
def test_bytes_exceed_thresholds_as_levels_do(scripts: Any, thresholds: int) -> None:
    import decoupled_st as dst

    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    found = dst.nn.Thermometer(scripts("images").thresholds_of(thresholds, 0)[0])(images)
    assert found.flatten().tolist() == bits(levels(images.numpy(), thresholds), thresholds).flatten().tolist()
