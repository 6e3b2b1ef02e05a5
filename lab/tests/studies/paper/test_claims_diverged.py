"""Runs that diverge and numbers that are not there: what they count for, and what is said of them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from dst_lab.claims import Verdict, arm
from dst_lab.plans import FRESH
from dst_lab.plans.plan import value_of
from dst_lab.report.verdicts import shown
from studies import PAPER
from studies.paper.claims import judge
from studies.paper.claims.effects import judge_effects
from studies.paper.recipes import RECIPES

TASKS = ("stochastic-binary", "categorical-autoencoder", "logic-gates")
CONVERGENCE = ("C2 convergence", TASKS[1])
SLOPE, INDEPENDENCE = ("C3 slope", TASKS[0]), ("C3 independence", "")


def by_claim(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Verdict]:
    return {(verdict.claim, verdict.task): verdict for verdict in verdicts}


def test_diverged_runs_count_as_the_worst(world) -> None:
    some = lambda c: c.estimator.name == "decoupled" and c.seed >= FRESH + 5  # noqa: E731
    found = by_claim(judge(world(gain=1.5, on=0.3, diverges=some).rows))
    main = found["C2", TASKS[0]].comparisons[0]
    assert main.diverged == (5, 0)
    assert main.fates == ("5 of 10 diverged", "")
    assert main.primary
    assert found["C2", TASKS[0]].verdict == "not supported"
    assert found[CONVERGENCE].comparisons[0].ours == 0.5
    theirs = lambda c: c.estimator.name != "decoupled" and c.seed >= FRESH  # noqa: E731
    assert by_claim(judge(world(gain=0.5, on=0.3, diverges=theirs).rows))["C2", TASKS[0]].verdict == "supported"
    everything = by_claim(judge(world(gain=1.5, diverges=lambda c: c.seed >= FRESH).rows))["C2", TASKS[0]]
    assert everything.verdict == "not supported"
    assert math.isnan(everything.comparisons[0].ours)


@pytest.mark.parametrize(("name", "gain", "beaten"), [("decoupled", 3.0, "better"), ("softmax_ste", -3.0, "worse")])
def test_who_diverges_more_often_beats_nobody(world, name, gain, beaten) -> None:
    """Four runs of ten diverge, and the other six are so much better that the test alone would be significant."""
    some = lambda c: c.estimator.name == name and FRESH <= c.seed < FRESH + 4  # noqa: E731
    found = by_claim(judge(world(gain=gain, on=0.3, diverges=some).rows))["C2", TASKS[0]]
    (against,) = (c for c in found.comparisons if c.judged and c.name == "against Softmax STE")
    assert getattr(against, f"p_{beaten}") < 0.025
    assert not getattr(against, beaten)
    assert found.verdict == ("not supported" if beaten == "better" else "contradicted")  # by the other two
    both = lambda c: FRESH <= c.seed < FRESH + 4  # noqa: E731
    level = by_claim(judge(world(gain=gain, on=0.3, diverges=both).rows))["C2", TASKS[0]]
    assert level.verdict == ("supported" if beaten == "better" else "contradicted")  # as many of both


def test_what_is_shown_of_an_arm_is_of_the_runs_that_finished(world) -> None:
    gone = lambda c: c.estimator.name == "gumbel_ste" and c.seed >= FRESH  # noqa: E731
    some = lambda c: gone(c) or (c.estimator.name == "identity_ste" and c.seed >= FRESH + 7)  # noqa: E731
    planted = world(gain=1.5, on=0.3, diverges=some)
    found = by_claim(judge(planted.rows))
    identity, _, gumbel = (c for c in found["C2", TASKS[0]].comparisons if c.judged)
    rows = [row for row in arm(planted.rows, TASKS[0], "identity_ste").rows if row.done]
    finished = [row.history["validation_loss"].values.min() for row in rows]
    assert len(finished) == 7
    assert identity.theirs == pytest.approx(np.mean(finished))
    assert identity.difference == pytest.approx(identity.ours - identity.theirs)
    assert math.isnan(identity.low)
    assert math.isnan(identity.effect)
    assert identity.ours == gumbel.ours  # one mean in every comparison
    assert math.isnan(gumbel.theirs)
    assert found["C2", TASKS[0]].verdict == "supported"
    (speed,) = (c for c in found["C2 speed", TASKS[0]].comparisons if c.name == "against ST Gumbel-Softmax")
    assert math.isnan(speed.theirs)
    said = shown(list(found.values()), PAPER)
    (line,) = (item.summary for item in said if (item.verdict.claim, item.verdict.task) == ("C2", TASKS[0]))
    assert "ST Gumbel-Softmax 10 of 10 diverged" in line
    assert "(3 of 10 diverged); Softmax STE" in line
    (lines,) = (item.judged for item in said if (item.verdict.claim, item.verdict.task) == ("C2", TASKS[0]))
    assert lines[2].theirs == "10 of 10 diverged"
    assert lines[0].theirs.endswith(" nats (3 of 10 diverged)")
    assert (lines[0].interval, lines[0].effect) == ("", "")


def test_the_page_says_who_diverges_more_often(world) -> None:
    some = lambda c: c.estimator.name == "decoupled" and c.seed == FRESH  # noqa: E731
    found = shown(judge(world(gain=3.0, on=0.3, diverges=some).rows), PAPER)
    (line,) = (item.summary for item in found if (item.verdict.claim, item.verdict.task) == ("C2", TASKS[0]))
    assert "(1 of 10 diverged) against Identity" in line
    assert line.count("(diverges more often)") == 3


def test_a_share_of_runs_has_no_interval(world) -> None:
    found = by_claim(judge(world(gain=1.5, on=0.3).rows))[CONVERGENCE].comparisons[0]
    assert (found.ours, found.theirs) == (1.0, 0.0)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def spoil(planted, recipe: str, task: str, metric: str, spoiled: Callable, at: slice, value: float) -> None:
    """Write a value into the metric of the runs of a sweep."""
    (sweep,) = (plan for plan in RECIPES.plans[recipe](planted.scale).plans if plan.base.task == task)
    for config in filter(spoiled, sweep.wanted(lambda _: None)):
        history = planted.find(config).history
        values = history[metric].values.copy()
        values[at] = value
        history[metric] = replace(history[metric], values=values)


def test_a_ratio_where_nothing_is_drawn_is_the_highest(world) -> None:
    """At tau_f = 0 nothing varies and SNR is recorded as NaN."""
    planted = world(trend=0.5, scale="paper")
    spoil(planted, "tau-f-effects", TASKS[1], "snr", lambda c: value_of(c, "tau_f") == 0, slice(None), math.nan)
    verdict = judge_effects(planted.rows)[0]
    assert verdict.verdict == "supported"
    ratio, without = verdict.comparisons[1:]
    assert ratio.ours == without.ours == pytest.approx(-1, abs=0.01)
    assert without.name == "tau_f up: gradient signal-to-noise ratio down, without tau_f = 0"
    assert not without.judged
    assert verdict.notes == ()


def test_without_tau_f_0_there_may_be_no_trend(world) -> None:
    planted = world(scale="paper")
    spoil(planted, "tau-f-effects", TASKS[1], "snr", lambda c: value_of(c, "tau_f") == 0, slice(None), math.nan)
    ratio, without = judge_effects(planted.rows)[0].comparisons[1:]
    assert ratio.better
    assert not without.better


def test_a_collapsed_run_is_left_out_and_does_not_count_as_noiseless(world) -> None:
    """Without a trend, collapse at the lowest tau_f of a sweep must not make one."""
    planted = world()
    spoil(planted, "tau-f-effects", TASKS[1], "snr", lambda c: value_of(c, "tau_f") == 0.5, slice(None), math.nan)
    verdict = by_claim(judge(planted.rows))["C3 tau_f", TASKS[1]]
    assert not verdict.comparisons[1].better
    assert verdict.notes == (
        "10 of 40 runs over tau_f on categorical-autoencoder have no gradient signal-to-noise ratio, and are left out "
        "of the trend of gradient signal-to-noise ratio",
    )


def test_one_measurement_without_a_ratio_costs_only_itself(world) -> None:
    planted = world(trend=0.5)
    some = lambda c: value_of(c, "tau_f") == 2.0 and c.seed < 5  # noqa: E731
    spoil(planted, "tau-f-effects", TASKS[1], "snr", some, slice(3, 4), math.nan)
    verdict = by_claim(judge(planted.rows))["C3 tau_f", TASKS[1]]
    assert verdict.comparisons[1].ours == pytest.approx(-1)
    assert verdict.notes == (
        "5 of 40 runs over tau_f on categorical-autoencoder have a gradient signal-to-noise ratio at some measurements "
        "only: the mean is over these",
    )


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_norm_of_0_or_nan_is_left_out_for_its_own_reason(world, value) -> None:
    planted = world(trend=1.0)
    at = lambda c: c.seed == 3 and value_of(c, "tau_b") == 0.1  # noqa: E731
    spoil(planted, "tau-b-effects", TASKS[0], "gradient_norm", at, slice(None), value)
    found = by_claim(judge(planted.rows))
    note = "1 of 40 runs over tau_b on stochastic-binary have no finite logarithm of gradient norm, and are left out of"
    assert found[SLOPE].verdict == "supported"
    assert found[SLOPE].notes[0].startswith(f"{note} the slope of log ")
    rho = found["C3 tau_b", TASKS[0]].comparisons[0].ours
    assert rho == pytest.approx(-1 if math.isnan(value) else (-9 + 0.2) / 10)  # NaN has no rank, 0 the lowest
    assert bool(found["C3 tau_b", TASKS[0]].notes) == math.isnan(value)
    few = lambda c: c.seed == 3 and value_of(c, "tau_b") < 0.5  # noqa: E731
    spoil(planted, "tau-b-effects", TASKS[0], "gradient_norm", few, slice(None), value)
    found = by_claim(judge(planted.rows))
    for key in (SLOPE, INDEPENDENCE):
        assert found[key].verdict == "not tested"
        (lack,) = found[key].missing
        assert "of some seed fewer than 3 runs are left: 2 of 40 have no finite logarithm of gradient norm" in lack


def test_diverged_runs_of_a_sweep_are_noted(world) -> None:
    gone = lambda c: c.task == TASKS[0] and c.estimator.name == "decoupled" and c.seed == 4  # noqa: E731
    one = lambda c: gone(c) and value_of(c, "tau_b") == 0.1  # noqa: E731
    found = by_claim(judge(world(trend=1.0, diverges=one).rows))[SLOPE]
    assert found.verdict == "supported"
    assert found.notes == ("1 of 40 runs over tau_b on stochastic-binary diverged, and are left out",)


def test_half_of_a_range_is_called_that(world) -> None:
    found = by_claim(judge(world(trend=1.0).rows))[INDEPENDENCE]
    assert found.comparisons[0].metric == (
        "range of codes in use (perplexity) over tau_b, against 0.5 of its range over tau_f"
    )
