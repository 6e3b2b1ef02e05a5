"""What is drawn is what the store holds, read back from the axes; the same bytes each time; what lacks is said."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from dst_lab.figures import Drawn, draw
from dst_lab.figures.sweeps import searched
from dst_lab.plans import FRESH
from dst_lab.records import Reader
from dst_lab.runs import Config
from dst_lab.store import Record, Store, run_id
from matplotlib.collections import LineCollection
from studies import PAPER
from studies.paper.figures import FIGURES
from studies.paper.recipes import RECIPES

SBN, CATAE, LOGIC = "stochastic-binary", "categorical-autoencoder", "logic-gates"


@pytest.fixture(scope="module")
def store(everything: Path) -> Iterator[Store]:
    with Store.open(everything) as opened:
        yield opened


@lru_cache
def settled(store: Store) -> dict[tuple[str, str], Config]:
    return RECIPES.chosen(Reader(store).scores(), "quick")


def confirmed(store: Store, task: str, estimator: str, metric: str) -> np.ndarray:
    """[seeds, T, ..] of the confirmation runs of the setting that the search chose, by the store alone."""
    setting = settled(store)[task, estimator].to_dict()
    ids = [run_id({**setting, "seed": seed}) for seed in range(FRESH, FRESH + 10)]
    return np.stack([store.history(run)[metric].values.astype(float) for run in ids])


def axes_of(one: Drawn) -> list[Any]:
    return [part.axes[0] for part in one.figure.subfigs]


@pytest.mark.parametrize(
    ("name", "task", "metrics"),
    [
        ("network-curves", SBN, (("validation_loss", 1), ("validation_accuracy", 100))),
        ("logic-curves", LOGIC, (("train_loss", 1), ("validation_accuracy", 100))),
    ],
)
def test_curves_are_means_over_fresh_seeds(
    store: Store, name: str, task: str, metrics: tuple[tuple[str, float], ...]
) -> None:
    drawn = draw({name: FIGURES[name]}, PAPER.rows(store, "quick"))
    for ax, (metric, factor) in zip(axes_of(drawn[name]), metrics, strict=True):
        lines = {line.get_label().split(" $")[0]: line for line in ax.get_lines()}
        for label, role in (
            ("Decoupled ST", "decoupled"),
            ("Softmax STE", "softmax_ste"),
            ("ST Gumbel-Softmax", "gumbel_ste"),
        ):
            values = factor * confirmed(store, task, role, metric)
            np.testing.assert_allclose(lines[label].get_ydata(), values.mean(0), rtol=1e-12)
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        values = factor * confirmed(store, task, "decoupled", metric)
        assert band.max() == pytest.approx((values.mean(0) + values.std(0, ddof=1)).max(), rel=1e-12)
    assert "n = 10 confirmation seeds" in drawn[name].caption
    assert ("; Soft (reference) 3 search seeds" in drawn[name].caption) == (task == LOGIC)


def test_part_of_a_grid_is_drawn_and_the_rest_is_said(tmp_path: Path) -> None:
    configs = RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)
    with Store.open(tmp_path / "part.sqlite", write=True) as store:
        store.put(map(planted.record, configs[:12]))
        one = draw({"map": FIGURES["map"]}, PAPER.rows(store, "quick"))["map"]
    assert one.missing == ["48 of 60 runs of sbn-grid"]
    assert np.isfinite(axes_of(one)[0].collections[0].get_array()).sum() == 4


def test_diverged_runs_are_hatched_and_said(tmp_path: Path) -> None:
    """Of the grid: one run of one cell, and all of another."""

    def record(config: Config) -> Record:
        taus = config.estimator.to_dict()
        at = (taus["tau_f"], taus["tau_b"])
        lost = at == (2.0, 0.1) or (at == (0.5, 0.3) and config.seed == 1)
        return replace(planted.record(config), status="diverged") if lost else planted.record(config)

    with Store.open(tmp_path / "lost.sqlite", write=True) as store:
        store.put(map(record, RECIPES.plans["sbn-grid"]("quick").wanted(lambda _: None)))
        rows = PAPER.rows(store, "quick")
        one, sweep = FIGURES["map"](rows), searched(rows, SBN, "decoupled")
        assert len(sweep.cells("validation_loss")[0.5, 0.3]) == 2
    assert sweep.lost == {(0.5, 0.3): 1, (2.0, 0.1): 3}
    ax = axes_of(one)[0]
    strokes = np.concatenate([path.get_segments() for path in ax.collections if isinstance(path, LineCollection)])
    corners = {tuple(np.floor(stroke.mean(0)).astype(int)) for stroke in strokes}
    assert corners == {(2, 1), (4, 0)}
    values = ax.collections[0].get_array().reshape(4, 5)
    assert np.argwhere(~np.isfinite(np.ma.filled(values, np.nan))).tolist() == [[0, 4]]
    assert "n = 2 to 3 search seeds at learning rate 0.003" in one.caption
    assert one.caption.endswith(
        "Diverged, and in no mean (hatched): 1 at τf = 0.5, τb = 0.3 and 3 at τf = 2, τb = 0.1."
    )


def test_a_chosen_setting_says_how_many_of_its_fresh_runs_diverged(tmp_path: Path) -> None:
    def record(config: Config) -> Record:
        lost = config.seed >= FRESH and (config.estimator.name == "gumbel_ste" or config.seed % 5 == 0)
        return replace(planted.record(config), status="diverged") if lost else planted.record(config)

    with Store.open(tmp_path / "lost.sqlite", write=True) as store:
        for name in ("sbn-grid", "sbn-baselines"):
            store.put(map(record, RECIPES.plans[name]("quick").wanted(lambda _: None)))
        settings = {
            role: config
            for (task, role), config in RECIPES.chosen(Reader(store).scores(), "quick").items()
            if task == SBN
        }
        fresh = [replace(config, seed=seed) for config in settings.values() for seed in range(FRESH, FRESH + 10)]
        store.put(map(record, fresh))
        rows = PAPER.rows(store, "quick")
        one = FIGURES["network-curves"](rows)
    gumbel, ours = rows.setting(SBN, "gumbel_ste"), rows.setting(SBN, "decoupled")
    assert gumbel is not None
    assert ours is not None
    assert (gumbel.n, gumbel.diverged, gumbel.seeds) == (0, 10, "confirmation")
    assert (ours.n, ours.diverged) == (8, 2)
    assert one.caption.endswith(
        "Diverged, and not drawn: Decoupled ST 2 of 10, Softmax STE 2 of 10, ST Gumbel-Softmax 10 of 10 and "
        "Identity STE 2 of 10."
    )
    assert not one.missing, "diverged is known"


def test_an_unfinished_search_is_mapped_at_one_learning_rate_and_drawn_at_all(tmp_path: Path) -> None:
    wanted = RECIPES.plans["catae-sequential"]("paper").wanted(lambda _: None)
    wanted = [config for config in wanted if config.estimator.to_dict()["tau_f"] < 1 and config.seed < 2]
    with Store.open(tmp_path / "part.sqlite", write=True) as store:
        store.put(map(planted.record, wanted[:-1]))
        rows = PAPER.rows(store, "paper")
        found = searched(rows, CATAE, "decoupled").cells("validation_loss")
        one = FIGURES["autoencoder-search"](rows)
    assert len(found) == 3
    for there in found.values():
        assert [row.run.seed for row in there] == [0, 1]
        assert {row.run.config["lr"] for row in there} == {7e-4}, "of the rates with all runs the best"
    labels = [line.get_label() for line in axes_of(one)[0].get_lines()]
    assert labels == ["rate 0.0003", "rate 0.0005", "rate 0.0007", "rate 0.001", "the paper's optimum, 2"]
    said = "The search is not done. Points: mean over n = 1 to 2 search seeds, one line per learning rate. "
    assert one.caption.startswith(said), "nothing is chosen, starred or drawn seed by seed"


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes(everything: Path, tmp_path: Path) -> None:
    """Drawn here and in another process, whose dictionaries and sets are ordered by another seed."""
    lab = Path(__file__).parents[3]
    code = (
        f"import sys; sys.path.insert(0, {str(lab)!r}); from pathlib import Path; from dst_lab.store import Store\n"
        "from dst_lab.figures import draw, write_files; from studies import PAPER\n"
        f"with Store.open({str(everything)!r}) as store: \n"
        "    write_files(draw(PAPER.figures, PAPER.rows(store, 'quick')), Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    files = sorted(file.name for file in (tmp_path / "1").iterdir())
    assert files == sorted(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg"))
    for name in files:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
