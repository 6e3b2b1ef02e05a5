"""The statistics against closed forms, fractions and scipy; two arms of which runs have no number."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dst_lab.cards import TASK_CARDS, TaskCard
from dst_lab.claims.arms import Arm, compare
from dst_lab.claims.measures import last
from dst_lab.claims.paired import paired, sign_flip, slope, spearman
from dst_lab.claims.verdict import decide
from dst_lab.records import Row
from dst_lab.store import Run, Series
from scipy import stats

RANDOM = np.random.default_rng(0)


def brute(gains: list[Fraction]) -> tuple[float, float]:
    """Over all assignments, in exact arithmetic."""
    sums = [sum(sign * gain for sign, gain in zip(signs, gains, strict=True)) for signs in product((1, -1), repeat=10)]
    return sum(s >= sum(gains) for s in sums) / 1024, sum(s <= sum(gains) for s in sums) / 1024


@pytest.mark.parametrize("number", range(20))
def test_sign_flips_are_exact_where_sums_tie(number) -> None:
    # Tenths have no binary form: in floats, sums that are equal come out different.
    tenths = np.random.default_rng(number).integers(-4, 6, 10)
    assert sign_flip(tenths / 10) == brute([Fraction(int(t), 10) for t in tenths])
    assert sign_flip(tenths * 1e-7) == sign_flip(tenths * 1e7) == sign_flip(tenths / 10)


def test_sign_flips_know_their_corners() -> None:
    assert sign_flip([0.3] * 10) == (1 / 1024, 1.0)
    assert sign_flip([-0.3] * 10) == (1.0, 1 / 1024)
    assert sign_flip([0.0] * 10) == (1.0, 1.0)
    assert sign_flip([1.0] * 5 + [0.0] * 5) == (1 / 32, 1.0)
    better, worse = sign_flip(RANDOM.standard_normal(10))
    assert better + worse == 1 + 1 / 1024  # without ties, the observed sum alone counts on both sides


def test_a_paired_comparison_is_the_t_interval_of_the_difference() -> None:
    ours, theirs = RANDOM.standard_normal(10), RANDOM.standard_normal(10) + 1
    found = paired(ours, theirs, -1)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.difference == pytest.approx(ours.mean() - theirs.mean())
    assert found.effect == pytest.approx(-found.difference / (ours - theirs).std(ddof=1))
    turned = paired(ours, theirs, 1)
    assert (turned.p_better, turned.p_worse, turned.effect) == (found.p_worse, found.p_better, -found.effect)


def test_a_difference_that_never_varies_has_no_finite_effect() -> None:
    assert paired([0.1] * 10, [0.3] * 10, -1).effect == math.inf
    assert paired([0.1] * 10, [0.3] * 10, 1).effect == -math.inf
    assert paired([0.1] * 10, [0.1] * 10, 1).effect == 0


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs of finite numbers were expected"):
        paired([1.0, math.nan], [1.0, 2.0], 1)


def test_rank_correlation_is_spearmans() -> None:
    x, y = RANDOM.integers(0, 5, 12), RANDOM.integers(0, 5, 12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman([0.0, 1.0, 2.0], [math.inf, 5.0, 3.0]) == pytest.approx(-1)
    assert spearman([0.0, 1.0, 2.0], [4.0, 4.0, 4.0]) == 0


def test_nan_has_no_rank() -> None:
    with pytest.raises(ValueError, match="NaN has no rank"):
        spearman([1.0, 2.0, 3.0], [math.nan, 1.0, 2.0])


def test_slope_is_least_squares() -> None:
    x, y = RANDOM.standard_normal(7), RANDOM.standard_normal(7)
    assert slope(x, y) == pytest.approx(np.polyfit(x, y, 1)[0])


LOST = None
"""A run that diverged."""


def arm(name: str, losses: Sequence[float | None]) -> Arm:
    def row(seed: int, loss: float | None) -> Row:
        config = {"task": "toy", "estimator": {"name": "decoupled"}, "seed": seed}
        status = "diverged" if loss is LOST else "done"
        run = Run(id=f"{name}{seed}", config=config, status=status, detail={}, provenance_id="")
        values = np.array([9.0, math.nan if loss is LOST else loss])
        return Row(run, lambda: {"test_loss": Series(np.array([1, 2]), values)})

    return Arm(name, None, tuple(row(seed, loss) for seed, loss in enumerate(losses)), ())


def test_a_run_whose_value_is_not_known_has_not_diverged() -> None:
    ours, theirs = arm("a", [math.nan, LOST, *[1.0] * 8]), arm("b", [2.0] * 10)
    found = compare(ours, theirs, last("test_loss"))
    assert found is not None
    assert (found.diverged, found.unknown, found.lost) == ((1, 0), (1, 0), (2, 0))
    assert (found.arm, found.name) == ("a", "against b")
    assert found.fates == ("1 of 10 diverged, 1 of 10 not known", "")
    assert (found.ours, found.theirs) == (1.0, 2.0), "means of those that have a number"
    assert math.isnan(found.low)
    assert math.isnan(found.effect)


def test_an_arm_gains_nothing_by_values_that_are_not_known() -> None:
    ours, theirs = arm("a", [math.nan, *[1.0] * 9]), arm("b", [2.0] * 10)
    ahead, behind = compare(ours, theirs, last("test_loss")), compare(theirs, ours, last("test_loss"))
    assert ahead is not None
    assert behind is not None
    assert ahead.p_better == behind.p_worse <= 0.025, "by p alone it would be"
    assert not ahead.better
    assert not behind.worse


def test_a_loss_has_the_unit_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = arm("a", [1.0] * 10), arm("b", [2.0] * 10)
    found = compare(ours, theirs, last("test_loss"))
    assert found is not None
    assert found.unit == "", "no card says what it is"
    monkeypatch.setitem(TASK_CARDS, "toy", TaskCard(name="toy", title="toy", loss_unit="mm"))
    found = compare(ours, theirs, last("test_loss"))
    assert found is not None
    assert found.unit == "mm"


def test_no_verdict_from_fewer_pairs_than_a_small_p_needs() -> None:
    """Five pairs that all point one way have a p of 1/32."""
    for pairs, expected in ((5, "not tested"), (6, "supported")):
        losses = [1.0 + 0.01 * i for i in range(pairs)]
        found = compare(arm("a", losses), arm("b", [loss + 1 for loss in losses]), last("test_loss"), judged=True)
        assert found is not None
        assert decide([found]) == expected
