"""What mattered of all that was varied, against sums of squares worked out by hand."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from dst_lab.figures.importance import analysed, importance
from dst_lab.figures.maps import pair_map
from dst_lab.records import Row, Setting
from dst_lab.store import Run, Series
from scipy import stats


def setting(loss: float, **fields: Any) -> Setting:
    config = {"task": "own", "estimator": {"name": "decoupled", "tau_b": 1.0, "tau_f": 1.0}, "seed": 0, "lr": 0.1}
    config["estimator"] |= {name: fields.pop(name) for name in ("tau_f", "tau_b") if name in fields}
    run = Run(id="0", config={**config, **fields}, status="done", detail={}, provenance_id="")
    history = {"validation_loss": Series(np.array([1]), np.array([loss]))}
    return Setting(run.config, [Row(run, lambda: history)], "", 0)


def replicated(losses: Any, levels: dict[str, list[Any]]) -> list[Setting]:
    """A setting for each entry of `losses` [.., seeds], with fields by the place in the axes before."""
    settings = []
    for place in np.ndindex(losses.shape[:-1]):
        fields = {name: values[i] for (name, values), i in zip(levels.items(), place, strict=True)}
        rows = [setting(float(loss), **dict(fields)).rows[0] for loss in losses[place]]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    return settings


LR = {"lr": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}
GRID = {**LR, "tau_b": [0.1, 0.3, 0.5, 1.0, 2.0]}


def test_what_mattered_is_the_analysis_of_variance_of_a_grid_with_seeds() -> None:
    """Against sums of squares worked out cell by cell, and scipy's F."""
    draws = np.random.default_rng(0)
    rate, tau = np.array([0, 0.3, 0.6, 0.9, 1.2]), np.array([0, 0.1, 0.2, 0.5, 1.0])
    y = rate[:, None, None] + tau[:, None] * (1 - 0.8 * rate[:, None, None]) + 0.1 * draws.standard_normal((5, 5, 3))
    found = analysed(replicated(np.exp(y), GRID))
    assert found is not None
    assert (found.runs, found.of_ranks) == (75, False)
    total, within = ((y - y.mean()) ** 2).sum(), ((y - y.mean(2, keepdims=True)) ** 2).sum()
    squares = {
        "lr": 15 * ((y.mean((1, 2)) - y.mean()) ** 2).sum(),
        "tau_b": 15 * ((y.mean((0, 2)) - y.mean()) ** 2).sum(),
        "seeds": within,
    }
    squares["in combination"] = total - sum(squares.values())
    assert found.shares == pytest.approx({name: value / total for name, value in squares.items()})
    for name, freedom in (("lr", 4), ("tau_b", 4), ("in combination", 16)):
        assert found.p[name] == pytest.approx(
            stats.f.sf(squares[name] / freedom / (within / 50), freedom, 50), rel=1e-6
        )
    caption = importance(replicated(np.exp(y), GRID), found, "own").caption
    assert f"lr {100 * found.shares['lr']:.0f}% (p < 0.001) and tau_b" in caption
    assert f"seeds of one setting {100 * found.shares['seeds']:.0f}%." in caption


def test_fields_that_act_together_only_have_no_share_of_their_own() -> None:
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    y = signs[:, :, None] + 0.01 * np.random.default_rng(1).standard_normal((2, 2, 5))
    found = analysed(replicated(np.exp(y), {"lr": [0.1, 1.0], "tau_b": [0.5, 1.0]}))
    assert found is not None
    assert found.shares["in combination"] > 0.99
    assert max(found.shares["lr"], found.shares["tau_b"]) < 0.001
    assert found.p["in combination"] < 1e-10 < min(found.p["lr"], found.p["tau_b"])


def test_what_two_fields_explain_alike_is_neithers() -> None:
    """Each learning rate was tried at a width of its own."""
    y = np.arange(4.0)[:, None] + 0.01 * np.random.default_rng(2).standard_normal((4, 3))
    settings = []
    for place, losses in enumerate(np.exp(y)):
        fields = {"lr": 0.1 * (1 + place // 2), "width": 8 * (1 + place // 2), "depth": place % 2}
        rows = [setting(float(loss), **dict(fields)).rows[0] for loss in losses]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    found = analysed(settings)
    assert found is not None
    assert found.shares["lr"] == found.shares["width"] == pytest.approx(0.0, abs=1e-9)
    assert found.shares["depth"] == pytest.approx(0.2, abs=0.02)


def test_losses_that_have_no_logarithm_are_ranked_and_what_diverged_comes_last() -> None:
    y = np.arange(6.0).reshape(3, 2, 1) - 2 + 0.01 * np.arange(3)
    settings = replicated(y, {"lr": [0.1, 1.0, 2.0], "tau_b": [0.5, 1.0]})
    found = analysed(settings)
    assert found is not None
    assert found.of_ranks
    worst = replace(settings[0], rows=settings[0].rows[:1], diverged=2)
    lost = analysed([worst, *settings[1:]])
    assert lost is not None
    assert lost.of_ranks
    assert lost.shares["lr"] < found.shares["lr"], "the best rate has two of the three worst runs"
    assert "rank of the loss" in importance(settings, found, "own").caption


def test_a_number_with_many_values_is_judged_by_groups_of_neighbours() -> None:
    rates = [10 ** (-4 + 3 * i / 15) for i in range(16)]
    draws = np.random.default_rng(4)
    settings = []
    for i, lr in enumerate(rates):
        losses = np.exp(abs(math.log10(lr) + 2.5) + 0.02 * (i % 2) + 0.02 * draws.standard_normal(3))
        rows = [setting(float(loss), lr=lr, depth=1 + i % 2, text=f"run {i}").rows[0] for loss in losses]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    found = analysed(settings)
    assert found is not None
    assert set(found.shares) == {"lr", "depth", "in combination", "seeds"}, (
        "a text of each setting's own explains nothing"
    )
    assert found.shares["lr"] > 0.6 > 0.1 > found.shares["depth"]


def test_a_map_of_two_fields_has_the_best_setting_of_each_pair() -> None:
    """The loss falls with the rate and with the width, and depth 2 is worse by 1."""
    settings = []
    for lr, width, depth in product((0.1, 1.0), (8, 16, "wide"), (1, 2)):
        loss = {0.1: 2.0, 1.0: 1.0}[lr] + {8: 0.5, 16: 0.3, "wide": 0.2}[width] + (depth - 1)
        rows = [setting(loss + seed, lr=lr, width=width, depth=depth).rows[0] for seed in (-0.01, 0.01)]
        settings.append(Setting(rows[0].run.config, rows, "", 0))
    found = analysed(settings)
    assert found is not None
    assert set(found.fields[:2]) == {"depth", "lr"}
    drawn = pair_map(settings, "lr", "width", ["depth"], "own")
    ax, bar = drawn.figure.subfigs[0].axes if drawn.figure.subfigs else drawn.figure.axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["8", "16", "wide"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0.1", "1"]
    cells = ax.collections[0].get_array().reshape(2, 3)
    assert np.asarray(cells) == pytest.approx(np.array([[2.5, 2.3, 2.2], [1.5, 1.3, 1.2]]))
    assert bar.get_ylabel() == "lowest validation loss"
    assert "whatever its depth" in drawn.caption
    assert "The lowest, 1.2, lies at lr = 1, width = wide." in drawn.caption
