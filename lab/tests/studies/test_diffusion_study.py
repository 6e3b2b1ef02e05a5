"""The rules and figures of the study of masked diffusion, on planted records."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dst_lab.figures import draw
from dst_lab.records import Rows
from dst_lab.store import Record, Series
from invented import put
from studies import DIFFUSION
from studies.diffusion.claims import (
    DATASETS,
    DIRECTIONS,
    GRADIENTS,
    GUIDANCE,
    GUIDANCE_ARMS,
    LOOPS,
    PRIOR,
    PUBLISHED,
    REWARD_ARMS,
    REWARDS,
    ROLLOUTS,
    SUDOKU,
    SUDOKU_ARMS,
    Difference,
)

PROBLEMS = 400


def run(task: str, each: float | None = None, config: dict[str, Any] | None = None, **history: float) -> Record:
    """A run whose first problems, a share of `each`, are solved."""
    fields = {
        "task": task,
        "estimator": {"name": "softmax_ste", "tau_f": 1.0, "tau_b": 1.0},
        "seed": 0,
        **(config or {}),
    }
    provenance: dict[str, Any] = {}
    if each is not None:
        count = round(each * PROBLEMS)
        fields["problems"] = PROBLEMS
        provenance["each"] = f"x{int('1' * count + '0' * (PROBLEMS - count), 2):x}"
    series = {name: Series(np.array([1]), np.array([value])) for name, value in history.items()}
    return Record(config=fields, status="done", history=series, provenance=provenance)


def gradients(norms: dict[str, tuple[float, float]]) -> Iterator[Record]:
    """Four batches of every path: the norm at 4 steps, and at 256."""
    for path in (*LOOPS, *ROLLOUTS, "score function"):
        small, large = norms.get(path, (1.0, 1.0))
        for steps, norm in ((4, small), (16, small), (64, large), (256, large)):
            for seed in range(4):
                config = {"arm": path, "steps": steps, "seed": seed}
                yield run(GRADIENTS, None, config, norm=norm, cosine=0.9 + 0.01 * seed)


def sudokus(shares: dict[str, float]) -> Iterator[Record]:
    for arm in SUDOKU_ARMS:
        for seed in range(5):
            share = shares.get(arm, 0.5)
            config = {"arm": arm, "phase": "judge", "seed": seed}
            yield run(SUDOKU, share, config, solved_argmax=share, solved_drawn=share / 2)


def rewards(objectives: dict[str, float], rounds: int = 3) -> Iterator[Record]:
    """J of each arm, a little apart from seed to seed; tuning says the same, and each data set has its truth."""
    for dataset in DATASETS:
        for name, value in (("truth", -2.0), ("before", -16.0)):
            config = {"arm": name, "phase": "truth", "dataset": dataset}
            yield run(REWARDS, None, config, kl=2.0, reward_b=value, objective_b=value)
        for arm in REWARD_ARMS:
            value = objectives.get(arm, -4.0)
            yield run(REWARDS, None, {"arm": arm, "phase": "tune", "dataset": dataset}, objective_a=value)
            for seed in range(rounds):
                config = {"arm": arm, "phase": "judge", "dataset": dataset, "seed": 100 + seed}
                yield run(REWARDS, None, config, objective_b=value + 0.01 * seed, kl=3.0, reward_b=value + 3)


def guidance(shares: dict[str, float], psnr: float) -> Iterator[Record]:
    for problem in ("sudoku", *PUBLISHED):
        for arm in ("none", *GUIDANCE_ARMS):
            for seed in range(3):
                share, prior = shares.get(arm, 0.5), PRIOR if problem == "sudoku" else 0
                config = {"arm": arm, "phase": "judge", "problem": problem, "prior": prior, "seed": 100 + seed}
                yield run(GUIDANCE, share, config, solved=share, psnr=psnr, accuracy=share)


@pytest.fixture
def rows(rows_at: Any, tmp_path: Path) -> Any:
    return lambda *records: rows_at(DIFFUSION, put(tmp_path / "runs.sqlite", *records))


def verdicts(rows: Rows) -> dict[str, str]:
    return {one.claim: one.verdict for one in DIFFUSION.judge(rows)}


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ({LOOPS[0]: (1.0, float("nan"))}, ("supported", "supported")),
        ({LOOPS[0]: (1.0, 1e16)}, ("supported", "supported")),
        ({}, ("not supported", "supported")),
        ({LOOPS[0]: (1.0, 1e16), LOOPS[1]: (1.0, 2.1)}, ("not supported", "supported")),
        ({ROLLOUTS[2]: (1.0, 2.1)}, ("not supported", "not supported")),
        ({ROLLOUTS[1]: (1.0, 0.4)}, ("not supported", "not supported")),
    ],
)
def test_what_explodes(rows: Any, norms: dict[str, tuple[float, float]], expected: tuple[str, str]) -> None:
    found = verdicts(rows(*gradients(norms)))
    assert (found["E1"], found["E2"], found["E3"]) == (*expected, "supported")


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"decoupled": 0.6}, ("supported", "supported")),
        ({"decoupled": 0.6, "soft": 0.58}, ("not supported", "supported")),
        ({"decoupled": 0.6, "soft": 0.7}, ("contradicted", "supported")),
        ({"decoupled": 0.6, "entropy": 0.57}, ("supported", "not supported")),
    ],
)
def test_sudoku_without_a_prior(rows: Any, shares: dict[str, float], expected: tuple[str, str]) -> None:
    found = verdicts(rows(*sudokus(shares)))
    assert (found["A1"], found["A2"]) == expected


@pytest.mark.parametrize(
    ("objectives", "expected"),
    [
        ({"decoupled-tokens": -3.0}, ("supported", "not supported", "supported", "supported")),
        ({"decoupled-tokens": -3.0, "st-all": -2.0}, ("contradicted", "not supported", "supported", "not supported")),
        ({"st-tokens": -3.0, "drakes": -2.0}, ("contradicted", "supported", "not supported", "supported")),
        ({"st-tokens": -3.0, "grpo": -2.0}, ("contradicted", "contradicted", "supported", "supported")),
        ({"st-tokens": -3.95}, ("not supported", "not supported", "supported", "supported")),
    ],
)
def test_fine_tuning(rows: Any, objectives: dict[str, float], expected: tuple[str, ...]) -> None:
    found = verdicts(rows(*rewards(objectives)))
    assert tuple(found[f"F{i} mnist"] for i in range(1, 5)) == expected


def test_rounds_that_an_arm_has_not_finished_do_not_count(rows: Any) -> None:
    every = rows(*(r for r in rewards({}, 4) if (r.config["arm"], r.config["seed"]) != ("grpo", 103)))
    judged = next(one for one in DIFFUSION.judge(every) if one.claim == "F1 mnist")
    assert len(judged.runs) == 3 * len(REWARD_ARMS)


def test_a_reference_without_a_direction_judges_no_cosine(rows: Any) -> None:
    unknown = {"cosine": Series(np.array([1]), np.array([np.inf]))}
    every = rows(*(replace(one, history=one.history | unknown) for one in gradients({})))
    assert verdicts(every)["E3"] == "not tested"


def test_two_rounds_are_too_few(rows: Any) -> None:
    assert verdicts(rows(*rewards({"decoupled-all": -1.0}, 2)))["F1 mnist"] == "not tested"


@pytest.mark.parametrize(
    ("shares", "psnr", "expected"),
    [
        ({"decoupled": 0.6}, 21.0, ("supported", "supported")),
        ({"decoupled": 0.6, "rloo": 0.59}, 20.0, ("not supported", "not supported")),
        ({"decoupled": 0.4}, 18.0, ("contradicted", "not supported")),
    ],
)
def test_guidance(rows: Any, shares: dict[str, float], psnr: float, expected: tuple[str, str]) -> None:
    found = verdicts(rows(*guidance(shares, psnr)))
    assert [found[name] for name in ("G1", "G2", "G3", "G4")] == [expected[0]] * 3 + [expected[1]]


def test_figures_show_what_was_planted(rows: Any) -> None:
    directions = [
        run(DIRECTIONS, None, {"arm": "st-all", "dataset": "mnist", "seed": seed}, cosine=0.5 + 0.1 * seed)
        for seed in range(3)
    ]
    rewarded = rewards({"grpo": -100.0})
    solved, guided = sudokus({"decoupled": 0.6}), guidance({}, 19.0)
    every = rows(*gradients({LOOPS[0]: (1.0, 1e16)}), *solved, *rewarded, *guided, *directions)
    drawn = draw(DIFFUSION.figures, every)
    assert [name for name, one in drawn.items() if one.empty] == ["diffusion-tuned", "diffusion-samples"]
    assert "GRPO, one step -100 (MNIST)" in drawn["diffusion-rewards"].caption
    np.testing.assert_allclose(drawn["diffusion-rewards"].figure.axes[0].lines[0].get_xdata(), [-4.0, -3.99, -3.98])
    widths = [bar.get_width() for bar in drawn["diffusion-sudoku"].figure.axes[0].patches]
    assert widths == pytest.approx([60.0, *[50.0] * 9, 30.0, *[25.0] * 9])
    norms = drawn["diffusion-steps"].figure.axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(norms, [[4, 1.0], [16, 1.0], [64, 1e16], [256, 1e16]])
    dots, middle = drawn["diffusion-directions"].figure.axes[0].lines
    np.testing.assert_allclose(dots.get_xdata(), [0.5, 0.6, 0.7])
    assert float(middle.get_xdata()[0]) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("mean", "error", "word"),
    [(0.05, 0.01, "better"), (-0.05, 0.01, "worse"), (0.04, 0.01, "level"), (0.05, 0.03, "level")],
)
def test_better_is_by_the_margin_and_by_two_standard_errors(mean: float, error: float, word: str) -> None:
    assert Difference(mean, error).word(0.05) == word
