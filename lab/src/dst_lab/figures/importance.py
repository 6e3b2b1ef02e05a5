"""What mattered of all that was varied: an analysis of variance of the loss over fields and seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc

from dst_lab.figures.style import FAINT, INK, Drawn, listing, number, panels, safe
from dst_lab.figures.sweeps import flat
from dst_lab.plans.plan import is_number
from dst_lab.records import Array, Setting
from dst_lab.runs import complete

MOST, GROUPS = 12, 4
"""A number with more values than this, or than half as many as settings have it, is taken in so many groups of
neighbours."""
FEWEST = 6
"""Degrees of freedom of the spread between seeds; with fewer there is nothing to judge the rest by."""
TOGETHER, SEEDS = "in combination", "seeds"


@dataclass(frozen=True)
class Importance:
    """Shares of the sum of squares: each field by itself, what they do together, and the seeds."""

    shares: Mapping[str, float]
    p: Mapping[str, float]
    """By F tests against the spread between the seeds of a setting; NaN where that is 0."""
    runs: int
    of_ranks: bool
    """True where losses were ranked, since some are not positive or runs diverged; else their logarithms are judged."""

    @property
    def fields(self) -> list[str]:
        """What was varied, the largest share first."""
        return sorted((name for name in self.shares if name not in (TOGETHER, SEEDS)), key=lambda n: -self.shares[n])


def analysed(settings: Sequence[Setting]) -> Importance | None:
    """The analysis of variance of the lowest validation losses; None where seeds are too few, or one field varied.

    A field's sum of squares is what it explains by itself or, if less, what it explains beyond all other fields: where
    not every combination was tried, what two fields explain equally well counts for neither. In combination: what the
    settings explain beyond the sum of the fields' effects. In a full grid with equally many seeds per setting, all
    shares and that of the seeds add up to 1.
    """
    losses = [loss for one in settings for loss in one.values("validation_loss")]
    losses += [math.inf] * sum(one.diverged for one in settings)
    of_ranks = not all(0 < loss < math.inf for loss in losses)
    each = [i for i, one in enumerate(settings) for _ in one.rows]
    places = np.array(each + [i for i, one in enumerate(settings) for _ in range(one.diverged)])
    values = _ranks(np.array(losses)) if of_ranks else np.log(losses)
    configs = [flat(complete(setting.config)) for setting in settings]
    of_name = {name: [config.get(name) for config in configs] for name in dict.fromkeys(chain(*configs))}
    varied = {name: of for name, of in of_name.items() if len(set(map(repr, of))) > 1}
    fields = {}
    for name, of in varied.items():
        groups = _grouped(of)
        matrix = groups[:, None] == np.unique(groups)  # [settings, groups]: true where a setting is of a group
        if matrix.shape[1] < len(settings):
            fields[name] = matrix[places].astype(np.float64)
    total, _ = _left(values, [])
    within, freedom = _left(values, [np.eye(len(settings))[places]])
    if len(fields) < 2 or not total or freedom < FEWEST:
        return None
    additive, additive_freedom = _left(values, fields.values())
    squares, freedoms = {}, {}
    for name, matrix in fields.items():
        alone, _ = _left(values, [matrix])
        without, more = _left(values, [other for key, other in fields.items() if key != name])
        squares[name] = min(total - alone, without - additive)
        freedoms[name] = more - additive_freedom
    squares[TOGETHER], freedoms[TOGETHER] = additive - within, additive_freedom - freedom
    # The probability of an F as large without any effect.
    tests = dict.fromkeys(squares, math.nan)
    for name, value in squares.items():
        if within and freedoms[name] > 0:
            tests[name] = float(fdtrc(freedoms[name], freedom, max(value, 0.0) / freedoms[name] / (within / freedom)))
    shares = {name: max(0.0, value / total) for name, value in (*squares.items(), (SEEDS, within))}
    return Importance(shares, tests, len(losses), of_ranks)


def importance(settings: Sequence[Setting], found: Importance, where: str) -> Drawn:
    """Bars, the largest field first, then what they do together, and the seeds."""
    names = found.fields
    ordered = [*names, TOGETHER, SEEDS]
    figure, (ax,) = panels(1, width=5.2, height=0.75 + 0.32 * len(ordered))
    for line, name in enumerate(ordered):
        ax.barh(line, 100 * found.shares[name], height=0.62, color=FAINT)
        ax.text(100 * found.shares[name] + 1, line, f"{100 * found.shares[name]:.0f}", va="center", color=INK)
    quantity = "rank of the loss" if found.of_ranks else "logarithm of the loss"
    ax.set(xlim=(0, 108), ylim=(len(ordered) - 0.4, -0.6), xlabel=f"share of the variance of the {quantity} (%)")
    ax.set_yticks(range(len(ordered)), [safe(name) for name in ordered])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    parts = [f"{name} {100 * found.shares[name]:.0f}%{_sure(found.p[name])}" for name in names]
    caption = (
        f"Which share of the variance of the {quantity} (the lowest over training) each field explains: "
        f"{listing(parts)}; in combination {100 * found.shares[TOGETHER]:.0f}%{_sure(found.p[TOGETHER])}; seeds of one "
        f"setting {100 * found.shares[SEEDS]:.0f}%. Analysis of variance of {found.runs} runs of {len(settings)} "
        f"settings on {settings[0].seeds_text}; p: F tests against the spread between seeds. A number with many values "
        "is taken in groups of neighbours. Where not every combination was tried, what two fields explain equally well "
        "counts for neither."
    )
    return Drawn(f"What mattered, {where}", figure, caption)


def _sure(p: float) -> str:
    return "" if math.isnan(p) else f" (p {'< 0.001' if p < 0.001 else number(p, 2)})"


def _left(values: Array, columns: Iterable[Array]) -> tuple[float, int]:
    """The sum of squares that a fit of a constant and the columns leaves, and its degrees of freedom."""
    matrix = np.concatenate([np.ones((len(values), 1)), *columns], 1)
    fitted, _, rank, _ = np.linalg.lstsq(matrix, values, rcond=None)
    return float(((values - matrix @ fitted) ** 2).sum()), len(values) - int(rank)


def _ranks(scores: Array) -> Array:
    """Ranks from 0; equal scores share their mean rank."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[inverse.reshape(-1)], dtype=np.float64)


def _grouped(values: Sequence[Any]) -> npt.NDArray[np.str_]:
    """The values themselves, or groups of neighbours where they are many numbers."""
    numbers = [value for value in values if is_number(value)]
    if len(set(numbers)) <= min(MOST, (len(numbers) + 1) // 2):
        return np.array([repr(value) for value in values])
    edges = np.quantile(numbers, np.linspace(0, 1, GROUPS + 1)[1:-1])
    return np.array([str(np.searchsorted(edges, one)) if one in numbers else repr(one) for one in values])
