"""A search that learns as it goes: Optuna asks, the store answers."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

from dst_lab.estimators import is_whole, numbers_of
from dst_lab.plans.plan import (
    Axis,
    Lookup,
    Plan,
    all_diverged,
    best,
    describe,
    edge,
    score,
    seeded,
    value_of,
    with_values,
)
from dst_lab.runs import Config

BATCH = 8
"""New settings at a time: each is trained with all its seeds, and all of them as one fleet."""
END = 0.02
"""This share of a range, on a logarithmic scale, is its end."""


@dataclass(frozen=True)
class Adaptive(Plan):
    """Up to `settings` settings, proposed in batches by Optuna's TPE in the logarithm of each axis.

    Nothing is kept of the search itself. Its sampler is seeded, so asking and telling from the start, with the scores
    that the store holds, leads to the same point: a killed search goes on, and half a batch is finished as it was.
    """

    base: Config
    axes: tuple[tuple[str, float, float], ...]
    """(name, lowest, highest), both above 0. A field that takes whole numbers is proposed whole ones, and so is a
    parameter of your own function whose ends are both whole numbers: 2 and 64, not 2.0 and 64.0."""
    seeds: tuple[int, ...]
    settings: int = 40
    sampler_seed: int = 0
    choices: tuple[Axis, ...] = ()
    """(name, values): parameters that take one of some values."""

    def __post_init__(self) -> None:
        if self.settings < 1:
            raise ValueError(f"a search tries at least 1 setting, got settings={self.settings}")
        for name, low, high in self.axes:
            if not 0 < low < high < math.inf:
                raise ValueError(f"{name} needs a lowest value above 0 and a higher highest, got {low} and {high}")
            if self._is_whole(name) and (low != int(low) or high != int(high)):
                raise ValueError(f"{name} takes whole numbers, and so do the ends of its range, got {low} and {high}")

    def wanted(self, lookup: Lookup) -> list[Config]:
        # Of few whole numbers or values one may be proposed twice: it is one setting.
        return seeded(dict.fromkeys(self._proposed(lookup)), self.seeds)

    def chosen(self, lookup: Lookup) -> list[Config]:
        proposed = self._proposed(lookup)
        winner = best(proposed, self.seeds, lookup) if len(proposed) == self.settings else None
        return [] if winner is None else [winner]

    def notes(self, lookup: Lookup) -> list[str]:
        how = f"{len(set(self._proposed(lookup)))} settings"
        names = [*(name for name, _, _ in self.axes), *(name for name, _ in self.choices)]
        remarks = []
        for winner in self.chosen(lookup):
            if score(winner, self.seeds, lookup) == math.inf:
                return [all_diverged(winner)]
            values = ", ".join(f"{name}={value_of(winner, name)}" for name in names)
            remarks.append(
                f"chosen for {describe(winner)}: {values}, {score(winner, self.seeds, lookup):.6g}, of {how}"
            )
            for name, low, high in self.axes:
                place = math.log(value_of(winner, name) / low) / math.log(high / low)
                if not END < place < 1 - END:
                    remarks.append(
                        f"  {name}={value_of(winner, name)} lies at the end of its range, {low:g} to {high:g}"
                    )
            for name, listed in self.choices:
                if edge(listed, value_of(winner, name)) is not None:
                    remarks.append(f"  {name}={value_of(winner, name)} lies on the edge of its values")
        return remarks

    def _proposed(self, lookup: Lookup) -> list[Config]:
        """Every setting asked for so far, the last batch being the one whose scores are not all known."""
        optuna = _optuna()
        sampler = optuna.samplers.TPESampler(
            seed=self.sampler_seed, multivariate=True, constant_liar=True, n_startup_trials=BATCH
        )
        study = optuna.create_study(sampler=sampler)
        kinds = optuna.distributions
        space: dict[str, Any] = {}
        for name, low, high in self.axes:
            if self._is_whole(name):
                space[name] = kinds.IntDistribution(int(low), int(high), log=True)
            else:
                space[name] = kinds.FloatDistribution(low, high, log=True)
        space |= {name: kinds.CategoricalDistribution(values) for name, values in self.choices}
        proposed: list[Config] = []
        while len(proposed) < self.settings:
            trials = [study.ask(space) for _ in range(min(BATCH, self.settings - len(proposed)))]
            batch = []
            for trial in trials:
                values = dict(trial.params)
                for name, low, high in self.axes:
                    if not isinstance(values[name], int):
                        # In four digits, or more where the range is narrow compared with its numbers; inside its ends.
                        digits = max(4, 3 + int(math.log10(high / (high - low))))
                        values[name] = min(max(float(f"{values[name]:.{digits}g}"), float(low)), float(high))
                batch.append(with_values(self.base, values))
            proposed += batch
            scores = [score(config, self.seeds, lookup) for config in batch]
            if None in scores:
                break
            for trial, value in zip(trials, scores, strict=True):
                failed = value is None or not math.isfinite(value)
                study.tell(trial, None if failed else value, state=optuna.trial.TrialState.FAIL if failed else None)
        return proposed

    def _is_whole(self, name: str) -> bool:
        """True for an axis of whole numbers."""
        numbers = numbers_of(self.base.estimator.kind)
        if name in numbers:
            return is_whole(numbers[name])
        kind = self.base.type_of(name)
        if kind is not None:
            return kind is int
        return all(isinstance(end, int) for axis, *ends in self.axes if axis == name for end in ends)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError('adaptive search needs Optuna: pip install "dst-lab[adaptive]"') from None

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
