"""What a claim comes to: a verdict, and the comparisons behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dst_lab.claims.paired import Paired

LEVEL = 0.025
"""The level of each one-sided test."""
SUPPORTED, NOT_SUPPORTED, CONTRADICTED, NOT_TESTED = "supported", "not supported", "contradicted", "not tested"


@dataclass(frozen=True, kw_only=True)
class Comparison(Paired):
    """Two arms in one metric, paired by seed. For a trend or a slope, `theirs` is the value that would mean no effect.

    `ours` and `theirs` are means over the runs that have a number, NaN where none has. `difference` is ours minus
    theirs in the metric's unit, with its 95% t interval from `low` to `high`. `effect` is the mean difference over its
    standard deviation, positive where ours is better. Interval and effect are NaN where a run has no number, and for
    shares of runs. `p_better` and `p_worse` are exact one-sided sign-flip tests of ours being better and being worse,
    over all pairs.
    """

    name: str
    metric: str
    unit: str
    direction: int
    """1 where higher is better for the claim, -1 where lower is."""
    judged: bool
    """True where it enters the verdict; the rest is shown and does not count."""
    arm: str = ""
    """Our arm in words; "" where it is the estimator that the study's claims are about."""
    diverged: tuple[int, int] = (0, 0)
    """How many of our runs and of theirs."""
    unknown: tuple[int, int] = (0, 0)
    """How many finished without a finite number, such as those whose metric is NaN. Like runs that diverged they are in
    no mean, and count as the worst in the test."""
    late: tuple[int, int] = (0, 0)
    """How many of those that finished did not get there; one evaluation past the end stands for them in the mean."""

    @property
    def fates(self) -> tuple[str, str]:
        """ "3 of 10 diverged", "2 of 10 not there by the end", of our runs and of theirs, or ""."""

        def fate(side: int) -> str:
            counts = {"diverged": self.diverged, "not known": self.unknown, "not there by the end": self.late}
            return ", ".join(f"{count[side]} of {self.n} {what}" for what, count in counts.items() if count[side])

        return fate(0), fate(1)

    @property
    def lost(self) -> tuple[int, int]:
        """How many of our runs and of theirs have no number: those that diverged, and those where it is not known."""
        return self.diverged[0] + self.unknown[0], self.diverged[1] + self.unknown[1]

    @property
    def better(self) -> bool:
        """Significantly better, and with no more runs that diverged or have no number."""
        return self.p_better <= LEVEL and self.lost[0] <= self.lost[1]

    @property
    def worse(self) -> bool:
        """Significantly worse, and theirs lost no more runs than ours."""
        return self.p_worse <= LEVEL and self.lost[1] <= self.lost[0]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim, judged."""

    claim: str
    """ "C1", or "C2 speed" for one side of it."""
    task: str
    """"" where the claim is not about one task."""
    title: str
    rule: str
    verdict: str = NOT_TESTED
    """ "supported", "not supported", "contradicted" or "not tested"."""
    comparisons: tuple[Comparison, ...] = ()
    missing: tuple[str, ...] = ()
    """What is not in the store, each with the command that makes it."""
    runs: tuple[str, ...] = ()
    """The ids of the runs that it was judged on."""
    notes: tuple[str, ...] = ()
    because: str = ""
    """Why the verdict is not what the comparisons alone say."""
    caution: str = ""
    """What the rule does not see and a reader must know: it is shown wherever the verdict is."""


def decide(comparisons: Sequence[Comparison], missing: Sequence[str] = ()) -> str:
    """Supported if every judged comparison is better, contradicted if one is worse; not tested where rows lack, or
    where the pairs are too few for any p to be at most the level."""
    judged = [comparison for comparison in comparisons if comparison.judged]
    if missing or not judged or any(0.5**comparison.n > LEVEL for comparison in judged):
        return NOT_TESTED
    if any(comparison.worse for comparison in judged):
        return CONTRADICTED
    return SUPPORTED if all(comparison.better for comparison in judged) else NOT_SUPPORTED
