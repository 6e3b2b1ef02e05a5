"""Two arms with runs that have no number: what counts in the test, what is in the means, and what is said of them."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from dst_lab.cards import TASK_CARDS, TaskCard
from dst_lab.claims.arms import Arm, compare
from dst_lab.claims.measures import last
from dst_lab.claims.verdict import decide
from dst_lab.records import Row
from dst_lab.store import Run, Series

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
    assert (found.whose, found.name) == ("a", "against b")
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
