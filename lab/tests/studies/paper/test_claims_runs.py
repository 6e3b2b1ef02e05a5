"""What a run of a claim is measured by, runs without a number, and dst claims."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dst_lab.cards import metric
from dst_lab.claims import Verdict, arm
from dst_lab.claims.measures import best, converged, first, last, mean, reach, stopped
from dst_lab.plans import FRESH
from dst_lab.plans.plan import value_of
from dst_lab.report.verdicts import in_words
from dst_lab.store import Series, Store
from dst_lab.tasks.stochastic_binary import THRESHOLDS
from studies import PAPER
from studies.paper.claims import judge, sweeps
from studies.paper.claims.effects import judge_effects
from studies.paper.claims.mechanisms import gap, inactive_below
from studies.paper.claims.tasks import RULES
from studies.paper.recipes import RECIPES

SMALL = {
    "stochastic-binary": ("--epochs", 2, "--hidden", "16,16", "--diagnose-every", 1),
    "categorical-autoencoder": ("--epochs", 2, "--hidden", "24,16", "--snr-every", 1, "--snr-passes", 4),
    "logic-gates": ("--width", 160, "--steps", 4, "--evaluate-every", 2),
}
SHARES = [inactive_below(i, threshold) for i, threshold in enumerate(THRESHOLDS)]
ASIDE = {
    "stochastic-binary": [last("inactive"), sweeps.NORM, sweeps.FIRST_NORM, sweeps.ACTIVE, *SHARES],
    "categorical-autoencoder": [converged("validation_loss", 30.0), sweeps.PERPLEXITY, sweeps.SNR],
    "logic-gates": [last("gate_perplexity", "gates"), gap(), last("unused_gates", "gates")],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.task)
def test_a_run_records_all_that_is_compared(rule, cli) -> None:
    assert cli("run", rule.task, "--seeds", 1, "--threads", 1, *SMALL[rule.task]).code == 0
    with Store.open(Path("dst.sqlite")) as store:
        history = store.history(store.runs()[0].id)
    for measure in (rule.primary, *rule.shown, *ASIDE[rule.task], reach(*_mark(rule), 99.0)):
        assert math.isfinite(measure.read(history)), measure.name
    assert len({measure.name for measure in (rule.primary, *rule.shown)}) == 1 + len(rule.shown)


def _mark(rule) -> tuple[str, float]:
    """A mark that no run reaches."""
    return rule.curve, 1e9 * metric(rule.curve).direction


NAN = math.nan
HISTORY = {
    "validation_loss": [3.0, 1.0, 2.0],
    "test_accuracy": [0.1, 0.2, 0.6],
    "validation_accuracy": [0.1, 0.2, 0.6],
    "validation_accuracy_argmax": [0.1, 0.2, 0.5],
    "perplexity": [[1.0, 1.0], [2.0, 4.0], [7.0, 8.0]],
}
READ = [
    (HISTORY, RULES[0].primary, 1.0),
    (HISTORY, RULES[2].primary, 0.5),
    (HISTORY, last("validation_loss"), 2.0),
    (HISTORY, stopped("test_accuracy"), 0.2),
    (HISTORY, gap(), pytest.approx(0.1)),
    *((HISTORY, reach("validation_loss", mark, 40.0), at) for mark, at in ((3.0, 10), (2.0, 20), (1.0, 20), (0.9, 40))),
    *((HISTORY, reach("test_accuracy", mark, 40.0), at) for mark, at in ((0.15, 20), (0.6, 30), (0.7, 40))),
    *((HISTORY, converged("validation_loss", mark), is_so) for mark, is_so in ((1.5, 0), (2.5, 1))),
    # A vector counts by its mean: 1, 3 and 7.5.
    (HISTORY, best("perplexity"), 7.5),
    (HISTORY, first("perplexity"), 1.0),
    (HISTORY, last("perplexity"), 7.5),
    (HISTORY, mean("perplexity"), pytest.approx(11.5 / 3)),
    (HISTORY, stopped("perplexity"), 3.0),
    (HISTORY, reach("perplexity", 3.0, 99.0), 20),
    # An evaluation with NaN is not the best one, and not the lowest loss.
    ({"validation_loss": [3.0, NAN, 2.0]}, best("validation_loss"), 2.0),
    ({"validation_accuracy": [NAN, 0.2, 0.1]}, best("validation_accuracy"), 0.2),
    ({"validation_loss": [3.0, NAN, 2.0], "test_loss": [NAN, 0.2, 0.1]}, stopped("test_loss"), 0.1),
    ({"validation_loss": [NAN] * 3}, best("validation_loss"), NAN),
    ({"validation_loss": [NAN] * 3, "test_loss": [1.0, 2.0, 3.0]}, stopped("test_loss"), NAN),
    # What is measured seldom has fewer steps: the value counts that was measured at the step of the lowest loss.
    ({"validation_loss": [3.0, 1.0, 2.0, 0.5], "inactive": {20: 0.2, 40: 0.4}}, stopped("inactive"), 0.4),
    ({"validation_loss": [3.0, 1.0, 2.0, 0.5], "inactive": {10: 0.1, 30: 0.3}}, stopped("inactive"), NAN),
]


@pytest.mark.parametrize(("history", "measure", "expected"), READ, ids=lambda one: getattr(one, "name", None))
def test_a_number_of_a_history(history, measure, expected) -> None:
    def series(values) -> Series:
        at = values if isinstance(values, dict) else {10 * i: value for i, value in enumerate(values, 1)}
        return Series(np.array(list(at)), np.array(list(at.values())))

    found = measure.read({name: series(values) for name, values in history.items()})
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_what_has_no_good_end_has_no_best_value() -> None:
    with pytest.raises(ValueError, match="whether a high or a low gradient_norm is best is not known"):
        best("gradient_norm")


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
    said = in_words(list(found.values()), PAPER)
    (line,) = (item.summary for item in said if (item.verdict.claim, item.verdict.task) == ("C2", TASKS[0]))
    assert "ST Gumbel-Softmax 10 of 10 diverged" in line
    assert "(3 of 10 diverged); Softmax STE" in line
    (lines,) = (item.judged for item in said if (item.verdict.claim, item.verdict.task) == ("C2", TASKS[0]))
    assert lines[2].theirs == "10 of 10 diverged"
    assert lines[0].theirs.endswith(" nats (3 of 10 diverged)")
    assert (lines[0].interval, lines[0].effect) == ("", "")


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


@pytest.mark.parametrize(
    ("spoiled", "at", "ratio", "note"),
    [
        (
            # Without a trend, collapse at the lowest tau_f of a sweep must not make one.
            lambda c: value_of(c, "tau_f") == 0.5,
            slice(None),
            None,
            "10 of 40 runs over tau_f on categorical-autoencoder have no gradient signal-to-noise ratio, and are left "
            "out of the trend of gradient signal-to-noise ratio",
        ),
        (
            lambda c: value_of(c, "tau_f") == 2.0 and c.seed < 5,
            slice(3, 4),
            -1,
            "5 of 40 runs over tau_f on categorical-autoencoder have a gradient signal-to-noise ratio at some "
            "measurements only: the mean is over these",
        ),
    ],
    ids=["collapsed", "one measurement"],
)
def test_a_ratio_that_is_not_known_is_left_out_and_does_not_count_as_noiseless(world, spoiled, at, ratio, note) -> None:
    planted = world(trend=0.5 if ratio else 0.0)
    spoil(planted, "tau-f-effects", TASKS[1], "snr", spoiled, at, math.nan)
    verdict = by_claim(judge(planted.rows))["C3 tau_f", TASKS[1]]
    assert verdict.comparisons[1].ours == pytest.approx(ratio) if ratio else not verdict.comparisons[1].better
    assert verdict.notes == (note,)


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


def test_every_claim_is_listed_and_one_command_says_what_lacks(cli) -> None:
    Store.open(Path("dst.sqlite"), write=True).close()
    ended = cli("claims", "--study", "paper", "--scale", "paper")
    assert ended.code == 0
    *heads, last = ended.out.splitlines()
    assert len(heads) == 3 + 6 + 4 + 4
    assert all(line.startswith("not tested     C") for line in heads)
    assert heads[0].startswith("not tested     C1 on stochastic-binary: The best temperatures")
    assert last == (
        "No claim is tested: dst.sqlite lacks runs that they ask for, which `dst reproduce lab/studies/paper "
        "--scale paper --store dst.sqlite` trains."
    )
