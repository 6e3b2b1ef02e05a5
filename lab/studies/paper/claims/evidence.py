"""Trends, slopes and ranges over sweeps of one temperature, gathered into a verdict."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dst_lab.claims import Comparison, Measure, Verdict, decide
from dst_lab.claims.paired import paired, slope, spearman

from studies.paper.claims.sweeps import LEAST, NORM, SNR, Sweep, Table
from studies.paper.claims.tasks import CATAE

LARGELY = 0.5
"""The most that the other temperature may move a quantity, as a share of what its own does."""
Keep = Callable[[float], bool]
"""True for a value that enters."""


@dataclass
class Evidence:
    """The comparisons of one claim as they are gathered, what lacks, and what had to be left out.

    A claim calls `trend`, `slope` and `smaller`, each of which adds a comparison of numbers by seed; then `verdict`.
    """

    sweeps: Sequence[Sweep]
    comparisons: list[Comparison] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.missing += [lack for sweep in self.sweeps for lack in sweep.missing]
        for sweep in self.sweeps:
            if sweep.diverged:
                self._note(f"{sweep.diverged} of {len(sweep.runs)} runs {sweep.place} diverged, and are left out")

    def trend(self, sweep: Sweep, measure: Measure, direction: int, *, judged: bool = False, but: str = "") -> None:
        """Spearman's rho within each seed against 0; without tau_f = 0 as well, where the ratio is infinite there."""
        table = self._table(sweep, measure, _known, f"the trend of {measure.name}{but}", judged)
        if table is not None:
            rhos = [spearman(taus, values) for taus, values in table]
            name = f"{sweep.name} up: {measure.name} {'up' if direction > 0 else 'down'}{but}"
            self._add(rhos, [0.0] * len(rhos), name=name, metric="Spearman's rho", direction=direction, judged=judged)
        if judged and measure is SNR and sweep.values[0] == 0 and not sweep.missing:
            above = replace(
                sweep, values=sweep.values[1:], tau_f=sweep.tau_f[1:], rows=tuple(of_seed[1:] for of_seed in sweep.rows)
            )
            self.trend(above, measure, direction, but=", without tau_f = 0")

    def slope(self, sweep: Sweep, measure: Measure, against: float, direction: int, *, judged: bool) -> None:
        """The slope of the logarithms within each seed, against a number."""
        metric = f"slope of log {measure.name} against log {sweep.name}"
        table = self._table(sweep, measure, _has_logarithm, f"the {metric}", judged)
        if table is not None:
            slopes = [slope(_logs(taus), _logs(values)) for taus, values in table]
            name = f"{'above' if direction > 0 else 'below'} {against:g}"
            self._add(slopes, [against] * len(slopes), name=name, metric=metric, direction=direction, judged=judged)

    def smaller(self, other: Sweep, own: Sweep, measure: Measure) -> None:
        """The range over the sweep of the other temperature, against half of that over its own."""
        log = measure in (NORM, SNR)
        quantity = f"{'log ' * log}{measure.name}"
        ranges = []
        for sweep in (other, own):
            table = self._table(
                sweep, measure, _has_logarithm if log else math.isfinite, f"the range of {quantity}", True
            )
            if table is None:
                return
            ranges.append([max(values) - min(values) for values in (_logs(v) if log else v for _, v in table)])
        self._add(
            ranges[0],
            [LARGELY * value for value in ranges[1]],
            name=f"{other.name} moves {measure.name} less than {LARGELY:g} of what {own.name} does",
            metric=f"range of {quantity} over {other.name}, against {LARGELY:g} of its range over {own.name}",
            unit="" if log else measure.unit,
            direction=-1,
            judged=True,
        )

    def _table(self, sweep: Sweep, measure: Measure, keep: Keep, what: str, judged: bool) -> Table | None:
        """What is kept of the sweep, with a note on the rest; None where it is too little, which lacks if judged."""
        if sweep.missing:
            return None
        try:
            table = sweep.read(measure)
        except KeyError:
            self._lacks(f"{measure.name}, which the runs {sweep.place} did not record", judged)
            return None
        kept = [[pair for pair in zip(*of_seed, strict=True) if keep(pair[1])] for of_seed in table]
        reason = f"have no {'finite logarithm of ' if keep is _has_logarithm else ''}{measure.name}"
        gone = sum(len(values) for _, values in table) - sum(map(len, kept))
        if any(len(pairs) < LEAST for pairs in kept):
            few = f"of some seed fewer than {LEAST} runs are left: {gone} of {len(sweep.runs)} {reason}"
            self._lacks(f"{what} {sweep.place}: {few}", judged)
            return None
        if gone:
            self._note(f"{gone} of {len(sweep.runs)} runs {sweep.place} {reason}, and are left out of {what}")
        if measure is SNR and sweep.partly:
            self._note(
                f"{sweep.partly} of {len(sweep.runs)} runs {sweep.place} have a {SNR.name} at some measurements "
                "only: the mean is over these"
            )
        return [([tau for tau, _ in pairs], [value for _, value in pairs]) for pairs in kept]

    def _lacks(self, lack: str, judged: bool) -> None:
        if judged:
            self.missing.append(lack)
        else:
            self._note(lack)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _add(self, ours: Sequence[float], theirs: Sequence[float], *, unit: str = "", **about: Any) -> None:
        """One comparison of a number of each seed with another of the same seed."""
        result = vars(paired(ours, theirs, about["direction"]))
        self.comparisons.append(Comparison(unit=unit, **about, **result))

    def verdict(self, claim: str, task: str, title: str, rule: str) -> Verdict:
        """What the comparisons come to, with a caution on each sweep of which most runs collapsed: a trend among such
        runs says nothing of learning."""
        cautions = [
            f"{sweep.collapsed} of {len(sweep.runs)} runs over {sweep.name} ended with almost all images on one code"
            for sweep in self.sweeps
            if sweep.task == CATAE.task and not sweep.missing and 2 * sweep.collapsed > len(sweep.runs)
        ]
        return Verdict(
            claim=claim,
            task=task,
            title=title,
            rule=rule,
            verdict=decide(self.comparisons, self.missing),
            comparisons=tuple(self.comparisons),
            missing=tuple(dict.fromkeys(self.missing)),
            notes=tuple(self.notes),
            runs=tuple(run for sweep in self.sweeps for run in sweep.runs),
            caution="; ".join(cautions),
        )


def _known(value: float) -> bool:
    return not math.isnan(value)


def _has_logarithm(value: float) -> bool:
    return 0 < value < math.inf


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]
