"""What is judged on each task, in one place: the primary metric, what else is shown, and the paper's optimum."""

from collections.abc import Sequence
from dataclasses import dataclass

from dst_lab.claims import Comparison, Measure
from dst_lab.claims.measures import best, last, stopped


@dataclass(frozen=True)
class TaskRule:
    """One task."""

    task: str
    primary: Measure
    shown: tuple[Measure, ...]
    test: Measure
    """The one of them that is nearest to the primary metric on test data."""
    curve: str
    """The metric over training behind the primary one: what speed is measured on."""
    optimum: tuple[float, float]
    """The paper's (tau_f, tau_b)."""


def _both(metric: str) -> tuple[Measure, Measure]:
    """The metric at its best and at the end."""
    return best(metric), last(metric)


def _test(suffix: str = "") -> tuple[Measure, ...]:
    """On test data only what the validation loss would have stopped at, and the end: nothing is chosen by them."""
    loss, accuracy = f"test_loss{suffix}", f"test_accuracy{suffix}"
    return stopped(loss), last(loss), stopped(accuracy), last(accuracy)


SBN = TaskRule(
    task="stochastic-binary",
    primary=best("validation_loss"),
    shown=(
        last("validation_loss"),
        *_both("validation_accuracy"),
        *_test(),
        *_both("validation_loss_argmax"),
        *_both("validation_accuracy_argmax"),
        *_test("_argmax"),
    ),
    test=_test()[0],
    curve="validation_loss",
    optimum=(0.1, 0.7),
)
CATAE = TaskRule(
    task="categorical-autoencoder",
    primary=best("validation_loss"),
    shown=(last("validation_loss"), *_test()[:2], *_both("validation_loss_argmax"), *_test("_argmax")[:2]),
    test=_test()[0],
    curve="validation_loss",
    optimum=(2.0, 0.5),
)
LOGIC = TaskRule(
    task="logic-gates",
    primary=best("validation_accuracy_argmax"),
    shown=(
        last("validation_accuracy_argmax"),
        *_both("validation_loss_argmax"),
        *_test("_argmax"),
        *_both("validation_loss"),
        *_both("validation_accuracy"),
        *_test(),
        last("train_loss"),
    ),
    test=_test("_argmax")[2],
    curve="validation_accuracy_argmax",
    optimum=(0.1, 2.0),
)
RULES = (SBN, CATAE, LOGIC)
OPTIMA = {rule.task: rule.optimum for rule in RULES}

OURS = "decoupled"
BASELINES = ("identity_ste", "softmax_ste", "gumbel_ste")
"""The estimators that the paper compares Decoupled ST with."""
ROLES = (OURS, "softmax_ste", "gumbel_ste", "identity_ste")
"""The estimators in the order in which figures show them."""
REFERENCE = "soft"
"""The relaxed original of the logic gates, which no claim judges."""
JUDGED = (
    "Settings are chosen by the lowest validation loss over training (mean over the search's seeds) and judged on 10 "
    "fresh seeds, paired by seed: exact sign-flip tests over the 2^10 assignments, one-sided at 0.025 each way. For "
    "the test, a run that diverged takes the worst value that either arm has. One arm beats another if it is "
    "significantly better and has no more runs that diverged."
)
"""What every rule on confirmation runs begins with."""


def on_test(rule: TaskRule, comparisons: Sequence[Comparison]) -> list[str]:
    """A note on whether test data, which choose and judge nothing, point where the judged comparisons do."""
    by_name = {one.name: one for one in comparisons if one.metric == rule.test.name}
    notes = []
    for judged in comparisons:
        if judged.judged and judged.name in by_name:
            one = by_name[judged.name]
            same = "the same direction" if one.difference * judged.difference > 0 else "not the same direction"
            p, side = min((one.p_better, "better"), (one.p_worse, "worse"))
            notes.append(f"{judged.name}, {same} ({side}, p = {p:.2g})")
    return [f"on test data ({rule.test.name}): {'; '.join(notes)}"] if notes else []
