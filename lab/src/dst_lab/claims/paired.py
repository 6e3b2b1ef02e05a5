"""The statistics of every claim: pairs of numbers by seed, and trends within a seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

Vector = npt.NDArray[np.float64]
TIE = 1e-9
"""Sums that differ by less than this share of the sum of absolute gains are equal: rounding must not break a tie."""


@dataclass(frozen=True)
class Paired:
    """Two arms seed by seed: means, t interval of the difference, effect size and one-sided tests."""

    n: int
    ours: float
    theirs: float
    difference: float
    low: float
    high: float
    effect: float
    p_better: float
    p_worse: float


def paired(ours: Sequence[float], theirs: Sequence[float], direction: int) -> Paired:
    """Two arms seed by seed: means, t interval of the difference, effect size and sign-flip tests.

    Example:
        >>> result = paired([1.0, 2.0, 4.0], [2.0, 4.0, 8.0], direction=-1)
        >>> round(result.difference, 2), result.p_better, result.p_worse
        (-2.33, 0.125, 1.0)
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2 or not np.isfinite([a, b]).all():
        raise ValueError(f"two or more pairs of finite numbers were expected, got {list(ours)} and {list(theirs)}")
    difference, spread = float((a - b).mean()), float((a - b).std(ddof=1))
    half = float(stdtrit(len(a) - 1, 0.975)) * spread / math.sqrt(len(a))
    better, worse = sign_flip(direction * (a - b))
    if spread > TIE * abs(difference):
        effect = direction * difference / spread
    else:  # the same difference in every pair
        effect = math.copysign(math.inf, direction * difference) if difference else 0.0
    means = float(a.mean()), float(b.mean())
    return Paired(len(a), *means, difference, difference - half, difference + half, effect, better, worse)


def sign_flip(gains: npt.ArrayLike) -> tuple[float, float]:
    """(P of a sum as high as this one, P of one as low) over all 2^n ways to give the gains signs; exact.

    Where nothing tells the arms apart, each pair could as well have come out the other way round: every assignment of
    signs is equally likely. Ties count against both sides; n gains that all point one way give (2^-n, 1).

    Example:
        >>> sign_flip([1.0] * 10)
        (0.0009765625, 1.0)
        >>> sign_flip([0.0, 0.0])
        (1.0, 1.0)
    """
    values = np.asarray(gains, np.float64)
    sums = _signs(len(values)) @ values
    slack = TIE * float(np.abs(values).sum())
    observed = float(values.sum())
    return float((sums >= observed - slack).mean()), float((sums <= observed + slack).mean())


@lru_cache
def _signs(n: int) -> Vector:
    if n > 20:
        raise ValueError(f"an exact test goes over 2^n assignments, n at most 20, got {n}")
    return np.asarray(1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1), np.float64)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation with average ranks for ties; 0 where either does not vary. Infinite values have a rank too.

    Example:
        >>> spearman([0.1, 0.5, 1.0, 2.0], [3.0, 4.0, 4.0, 9.0])
        0.9486832980505138
    """
    if np.isnan([*x, *y]).any():
        raise ValueError(f"NaN has no rank: leave it out of {list(x)} and {list(y)}")
    sides = [np.asarray(values, np.float64) for values in (x, y)]
    # The rank of a value: how many are below, and the middle of those that are equal to it.
    ranks = [(v[:, None] > v).sum(1) + ((v[:, None] == v).sum(1) + 1) / 2 for v in sides]
    a, b = (rank - rank.mean() for rank in ranks)
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else 0.0


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the least-squares line.

    Example:
        >>> slope([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
        2.0
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    a = a - a.mean()
    return float(a @ b) / float(a @ a)
