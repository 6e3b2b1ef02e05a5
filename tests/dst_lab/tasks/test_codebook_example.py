"""The worked example of a codebook's autoencoder: ordinary networks, recorded like any other task's."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import dst_lab
from dst_lab.configs import CONFIGS, Choice
from dst_lab.fleet.chooser import Chooser
from dst_lab.store import Store
from dst_lab.tasks import TASKS

SMALL = ["--steps", "20", "--codes", "16", "--width", "8", "--features", "4", "--lr", "0.01"]


@pytest.fixture
def example() -> Iterator[ModuleType]:
    before = dict(TASKS), dict(CONFIGS)
    path = Path(__file__).parents[3] / "examples" / "codebook_autoencoder.py"
    spec = importlib.util.spec_from_file_location("codebook_autoencoder", path)
    module = sys.modules["codebook_autoencoder"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for table, old in zip((TASKS, CONFIGS), before, strict=True):
        table.clear()
        table.update(old)


def run(example: ModuleType, store: Path, *options: str) -> dict[int, dict[str, list[float]]]:
    with pytest.raises(SystemExit) as left:
        example.main(["run", "codebook-autoencoder", *SMALL, *options, "--store", str(store)])
    assert left.value.code == 0
    with Store.open(store) as opened:
        return {
            run.config["seed"]: {name: list(curve.values) for name, curve in opened.history(run.id).items()}
            for run in opened.runs()
        }


@pytest.mark.parametrize(
    "options",
    [
        ("--estimator", "decoupled", "--tau-f", "0", "--tau-b", "0.1", "--entropy", "0.1"),
        ("--estimator", "identity-ste", "--metric", "l2"),
    ],
    ids=lambda options: options[1],
)
def test_it_learns_and_is_recorded(options: tuple[str, ...], example: ModuleType, tmp_path: Path) -> None:
    (curves,) = run(example, tmp_path / "runs.sqlite", "--seeds", "1", *options).values()
    assert curves["validation_loss"][-1] < 0.9 * curves["validation_loss"][0]
    assert 1 / 16 <= curves["usage"][-1] <= 1
    assert 1 <= curves["perplexity"][-1] <= 16
    assert curves["test_loss_argmax"][-1] > 0


def test_a_run_is_itself_alone_or_in_a_fleet(example: ModuleType, tmp_path: Path) -> None:
    options = "--estimator", "decoupled", "--tau-f", "0.1", "--tau-b", "0.1"
    both = run(example, tmp_path / "both.sqlite", "--seeds", "2", *options)
    alone = run(example, tmp_path / "alone.sqlite", "--seeds", "1,", *options)
    assert both[1]["validation_loss"] == alone[1]["validation_loss"] != both[0]["validation_loss"]
    assert both[1]["perplexity"] == alone[1]["perplexity"]


def test_what_it_refuses(example: ModuleType) -> None:
    estimator = Choice.make("soft", tau=1.0)
    with pytest.raises(ValueError, match="start must be one of rows, normal"):
        example.CodebookAutoencoderConfig(estimator=estimator, start="zeros")
    config = example.CodebookAutoencoderConfig(estimator=estimator, codes=16, width=8, features=4)
    task = example.CodebookAutoencoder(config, None, torch.device("cpu"))
    parameters = {name: value.unsqueeze(0) for name, value in task.initial(3).items()}
    chooser = Chooser(estimator, {"tau": torch.ones(1)}, None)
    with pytest.raises(ValueError, match="soft has no form for codebooks"):
        task.loss(parameters, torch.zeros(1, 2, dtype=torch.int64), chooser)


def test_a_kept_network_reconstructs(example: ModuleType, tmp_path: Path) -> None:
    options = "--estimator", "decoupled", "--tau-f", "0", "--tau-b", "0.1", "--seeds", "1", "--keep"
    (curves,) = run(example, tmp_path / "kept.sqlite", *options).values()
    with Store.open(tmp_path / "kept.sqlite") as store:
        (kept,) = store.runs()
    assert dst_lab.evaluate(tmp_path / "kept.sqlite", kept.id)["validation_loss"] == curves["validation_loss"][-1]
    network, images = dst_lab.load(tmp_path / "kept.sqlite", kept.id), torch.rand(2, 1, 8, 8) - 0.5
    assert network(images).shape == images.shape
