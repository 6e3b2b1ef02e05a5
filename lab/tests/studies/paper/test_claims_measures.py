"""Every measure reads what a real run records."""

import math
from pathlib import Path

import numpy as np
import pytest
from dst_lab.cards import metric
from dst_lab.claims.measures import best, converged, first, last, mean, reach, stopped
from dst_lab.store import Series, Store
from dst_lab.tasks.stochastic_binary import THRESHOLDS
from studies.paper.claims import sweeps
from studies.paper.claims.mechanisms import gap, inactive_below
from studies.paper.claims.tasks import RULES

SMALL = {
    "stochastic-binary": ("--epochs", 2, "--hidden", "16,16", "--diagnose-every", 1),
    "categorical-autoencoder": ("--epochs", 2, "--hidden", "24,16", "--snr-every", 1, "--snr-passes", 4),
    "logic-gates": ("--width", 160, "--steps", 4, "--evaluate-every", 2),
}
ASIDE = {
    "stochastic-binary": [
        last("inactive"), sweeps.NORM, sweeps.FIRST_NORM, sweeps.ACTIVE,
        *(inactive_below(i, threshold) for i, threshold in enumerate(THRESHOLDS)),
    ],
    "categorical-autoencoder": [converged("validation_loss", 30.0), sweeps.PERPLEXITY, sweeps.SNR],
    "logic-gates": [last("gate_perplexity", "gates"), gap(), last("unused_gates", "gates")],
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.task)
def test_a_run_records_all_that_is_compared(rule, cli) -> None:
    assert cli("run", rule.task, "--seeds", 1, "--threads", 1, *SMALL[rule.task]).code == 0
    with Store.open(Path("dst.sqlite")) as store:
        history = store.history(store.runs()[0].id)
    for measure in (rule.primary, *rule.beside, *ASIDE[rule.task], reach(*_mark(rule), 99.0)):
        assert math.isfinite(measure.read(history)), measure.name
    assert len({measure.name for measure in (rule.primary, *rule.beside)}) == 1 + len(rule.beside)


def _mark(rule) -> tuple[str, float]:
    """A mark that no run reaches."""
    return rule.curve, 1e9 * metric(rule.curve).direction


def test_numbers_of_a_history() -> None:
    steps = np.array([10, 20, 30])
    loss, accuracy = Series(steps, np.array([3.0, 1.0, 2.0])), Series(steps, np.array([0.1, 0.2, 0.6]))
    history = {"validation_loss": loss, "test_accuracy": accuracy, "validation_accuracy": accuracy}
    history["validation_accuracy_argmax"] = Series(steps, np.array([0.1, 0.2, 0.5]))
    history["perplexity"] = Series(steps, np.array([[1.0, 1.0], [2.0, 4.0], [7.0, 8.0]]))
    assert RULES[0].primary.read(history) == 1.0
    assert RULES[2].primary.read(history) == 0.5
    assert last("validation_loss").read(history) == 2.0
    assert last("perplexity").read(history) == 7.5
    assert stopped("test_accuracy").read(history) == 0.2
    assert gap().read(history) == pytest.approx(0.1)
    assert [reach("validation_loss", mark, 40.0).read(history) for mark in (3.0, 2.0, 1.0, 0.9)] == [10, 20, 20, 40]
    assert [reach("test_accuracy", mark, 40.0).read(history) for mark in (0.15, 0.6, 0.7)] == [20, 30, 40]
    assert [converged("validation_loss", mark).read(history) for mark in (1.5, 2.5)] == [0, 1]


def test_a_value_at_the_lowest_loss_is_of_that_step() -> None:
    """What is measured seldom has fewer steps: the places of the two series are not the same."""
    loss = Series(np.array([10, 20, 30, 40]), np.array([3.0, 1.0, 2.0, 0.5]))
    history = {"validation_loss": loss, "inactive": Series(np.array([20, 40]), np.array([0.2, 0.4]))}
    assert stopped("inactive").read(history) == 0.4
    history["inactive"] = Series(np.array([10, 20, 30]), np.array([0.1, 0.2, 0.3]))
    assert math.isnan(stopped("inactive").read(history))


def test_a_vector_counts_by_its_mean() -> None:
    """Its means are 2, 3, 4 and 5."""
    steps, values = np.array([10, 20, 30, 40]), np.array([[1.0, 1, 1, 5], [2, 2, 2, 6], [3, 3, 3, 7], [4, 4, 4, 8]])
    history = {"perplexity": Series(steps, values), "validation_loss": Series(steps, np.array([4.0, 1, 2, 3]))}
    assert best("perplexity").read(history) == 5.0
    assert (first("perplexity").read(history), last("perplexity").read(history)) == (2.0, 5.0)
    assert mean("perplexity").read(history) == 3.5
    assert stopped("perplexity").read(history) == 3.0
    assert reach("perplexity", 3.0, 99.0).read(history) == 20
    assert converged("perplexity", 5.5).read(history) == 1


def test_an_evaluation_with_nan_is_not_the_best_one() -> None:
    """One made the best of a run NaN, though figures and tables left it out; it also counted as the lowest loss."""
    steps = np.array([10, 20, 30])
    history = {"validation_loss": Series(steps, np.array([3.0, math.nan, 2.0]))}
    history["validation_accuracy"] = Series(steps, np.array([math.nan, 0.2, 0.1]))
    assert best("validation_loss").read(history) == 2.0
    assert best("validation_accuracy").read(history) == 0.2
    assert stopped("validation_accuracy").read(history) == 0.1
    nowhere = {name: Series(steps, np.full(3, math.nan)) for name in history} | {"test_loss": Series(steps, steps / 1)}
    assert math.isnan(best("validation_loss").read(nowhere))
    assert math.isnan(stopped("test_loss").read(nowhere))


def test_what_has_no_good_end_has_no_best_value() -> None:
    with pytest.raises(ValueError, match="whether a high or a low gradient_norm is best is not known"):
        best("gradient_norm")
