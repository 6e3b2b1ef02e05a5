"""Which of the things that were varied made the difference: the share of the loss that each accounts for alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dst_lab.figures.style import FAINT, INK, Drawn, listing, numbers_of, panels, safe
from dst_lab.plans.plan import is_number
from dst_lab.records import Array, Setting
from dst_lab.records.groups import score
from dst_lab.runs import complete

MOST = 12
"""A number with more values than this, or than half as many as settings have it, is taken in groups of neighbours."""
BINS, TOGETHER = (3, 6), 3
"""How many such groups at least and at most, all of about one size, and how many settings a group shall have."""
PERMUTED, FEW = 200, 200
"""How often ranks are permuted to see what chance does, and up to how many settings: with more it does little."""
FEWEST = 6
"""Settings below which there is nothing to say."""


def importance(settings: Sequence[Setting], where: str) -> Drawn:
    """Bars, the largest first; for settings of which `shares_of` finds something."""
    shares = shares_of(settings)
    unjudged = [name for name in varied(settings) if name not in shares]
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1]))
    figure, (ax,) = panels(1, width=5.2, height=0.75 + 0.32 * len(ordered))
    for line, share in enumerate(ordered.values()):
        ax.barh(line, 100 * share, height=0.62, color=FAINT)
        ax.text(100 * share + 1, line, f"{100 * share:.0f}", va="center", color=INK)
    ax.set(xlim=(0, 108), ylim=(len(ordered) - 0.4, -0.6), xlabel="share of the differences in rank (%)")
    ax.set_yticks(range(len(ordered)), [safe(name) for name in ordered])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    by_chance = chance_level(settings) if len(settings) <= FEW else 0.0
    if by_chance:
        ax.axvline(100 * by_chance, color=INK, ls=":", lw=1)
    rest, which = 1 - sum(ordered.values()), " that could be judged" if unjudged else ""
    first = listing([f"{name} {100 * share:.0f}%" for name, share in list(ordered.items())[:3]])
    caption = (
        f"{first} of how the {len(settings)} settings differ in rank by their mean lowest validation loss over "
        f"{settings[0].seeds_text}"
        + (f"; {100 * rest:.0f}% no field{which} explains by itself: combinations, or chance" if rest > 0.005 else "")
        + (f". Not judged, since each setting has a value of its own: {listing(unjudged)}" if unjudged else "")
        + ". A share is what the values of a field, neighbours together where a number has many, explain of the "
        "variance of the ranks, by themselves or beyond all other fields, whichever is less, and less what chance "
        "would (epsilon squared). What fields that were varied together explain is nobody's. Settings with a run that "
        "diverged rank last."
    )
    if by_chance:
        caption += f" Dotted: {100 * by_chance:.0f}%, which chance alone exceeds in one of twenty such figures."
    return Drawn(f"What mattered, {where}", figure, caption)


def shares_of(settings: Sequence[Setting]) -> dict[str, float]:
    """Field -> the share of the variance of the ranks that it explains; 0 where chance would do as much.

    That is what it explains by itself or, where that is less, what it adds to all the others: a field that a search
    tries last, beside the best values of the others, would get the credit for these.

    Chance is what all fields together leave, as a sum of their effects, where at least half of the settings are left
    to judge it by; otherwise what the field by itself leaves, and it is taken off the first of the two alone.
    """
    ranks = _ranks(np.array([score(setting) for setting in settings]))
    return _shares(ranks - ranks.mean(), _columns(settings))


def chance_level(settings: Sequence[Setting]) -> float:
    """The largest share that is exceeded in one of twenty such figures of losses that no field moves."""
    ranks = _ranks(np.array([score(setting) for setting in settings]))
    columns, generator = _columns(settings), np.random.default_rng(0)
    largest = [max(_shares(generator.permutation(ranks - ranks.mean()), columns).values()) for _ in range(PERMUTED)]
    return float(np.quantile(largest, 0.95))


def _columns(settings: Sequence[Setting]) -> dict[str, Array]:
    """The fields that can be judged: those with fewer groups than there are settings, as indicators."""
    columns = {name: _indicators(_grouped(values)) for name, values in varied(settings).items()}
    return {name: matrix for name, matrix in columns.items() if 1 < matrix.shape[1] < len(settings)}


def _shares(ranks: Array, columns: Mapping[str, Array]) -> dict[str, float]:
    total, count = float((ranks**2).sum()), len(ranks)
    if not columns or not total:
        return {}
    left, freedom = _left(ranks, columns.values())
    shares = {}
    for name, matrix in columns.items():
        within, own_freedom = _left(ranks, [matrix])
        without, more = _left(ranks, [other for key, other in columns.items() if key != name])
        enough = 2 * freedom >= count
        alone = total - within - (matrix.shape[1] - 1) * (left / freedom if enough else within / own_freedom)
        added = without - left - (more - freedom) * (left / freedom if enough else 0.0)
        shares[name] = max(0.0, min(alone, added) / total)
    return shares


def _indicators(groups: Sequence[Any]) -> Array:
    """[settings, groups]: 1 where a setting is of a group."""
    _, inverse = np.unique(np.array([str(group) for group in groups]), return_inverse=True)
    return np.eye(int(inverse.max()) + 1)[inverse.reshape(-1)]


def _left(ranks: Array, columns: Iterable[Array]) -> tuple[float, int]:
    """The sum of squares that a fit of a constant and the columns leaves, and its degrees of freedom."""
    matrix = np.concatenate([np.ones((len(ranks), 1)), *columns], 1)
    fitted, _, rank, _ = np.linalg.lstsq(matrix, ranks, rcond=None)
    return float(((ranks - matrix @ fitted) ** 2).sum()), len(ranks) - int(rank)


def varied(settings: Sequence[Setting]) -> dict[str, list[Any]]:
    """What differs between settings: the estimator, its numbers and the config's fields, each with its values."""
    configs = [_flat(complete(setting.config)) for setting in settings]
    names = dict.fromkeys(name for config in configs for name in config)
    values_of = {name: [config.get(name) for config in configs] for name in names}
    return {name: values for name, values in values_of.items() if len(set(map(repr, values))) > 1}


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by their own names, those inside others too."""
    fields: dict[str, Any] = {"estimator": config["estimator"]["name"], **numbers_of(config["estimator"])}
    for name, value in config.items():
        if name not in ("estimator", "seed", "task", "objective"):
            fields |= dict(value) if isinstance(value, Mapping) else {name: value}
    return fields


def _ranks(scores: Array) -> Array:
    """From 0, equal ones alike; what is infinite comes last."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[inverse.reshape(-1)], dtype=np.float64)


def _grouped(values: Sequence[Any]) -> list[Any]:
    """The values themselves, or groups of neighbours where they are many numbers."""
    numbers = [value for value in values if is_number(value)]
    if len(set(numbers)) <= min(MOST, (len(numbers) + 1) // 2):
        return [repr(value) for value in values]
    bins = min(max(len(numbers) // TOGETHER, BINS[0]), BINS[1])
    edges = np.quantile(numbers, np.linspace(0, 1, bins + 1)[1:-1])
    return [int(np.searchsorted(edges, value)) if value in numbers else repr(value) for value in values]
