"""Successive halving: the worse half of the settings trained together is given up early."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dst_lab.runs import Config


@dataclass(frozen=True)
class Halving:
    """At these shares of training the worse half of a fleet's settings stops; all the seeds of a setting together.

    A setting counts with the mean over its seeds of the lowest validation loss so far; of equals the first goes on. By
    the losses that are recorded the best setting of a fleet is never one that was stopped, since a lowest loss only
    falls. Trained whole, one that learns late may have been better.
    """

    at: tuple[float, ...] = (0.25, 0.5)
    seeds: int | None = None
    """How many runs a setting has. One of which a fleet holds fewer, since the others were trained before or are
    trained elsewhere, goes on: it is not to be judged by some of its seeds."""

    def __post_init__(self) -> None:
        if not self.at or not all(0 < share < 1 for share in self.at):
            raise ValueError(f"halving takes shares of training between 0 and 1, got {self.at}")

    def __call__(
        self, before: float, now: float, configs: Sequence[Config], scores: Sequence[float]
    ) -> list[int] | None:
        """Which of the runs go on, at an evaluation `now`, the one `before` it, both as shares; None where all do."""
        due = sum(before < share <= now for share in self.at)
        if not due:
            return None
        settings: dict[Config, list[int]] = {}
        for run, config in enumerate(configs):
            settings.setdefault(replace(config, seed=0), []).append(run)
        parts = [runs for runs in settings.values() if self.seeds and len(runs) < self.seeds]
        whole = [runs for runs in settings.values() if runs not in parts]
        ranked = sorted(whole, key=lambda runs: math.fsum(scores[run] for run in runs) / len(runs))
        kept = -(-len(ranked) // 2**due)
        return sorted(run for runs in [*ranked[:kept], *parts] for run in runs)
