"""Hundreds of worlds without any difference: how often each claim is supported all the same."""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import dst_lab.plans.plan
import pytest
from dst_lab.claims import Verdict
from dst_lab.records import Rows
from studies.paper.claims.baselines import judge_baselines
from studies.paper.claims.effects import judge_effects
from studies.paper.claims.off_diagonal import judge_off_diagonal
from studies.paper.claims.tasks import RULES

WORLDS = 250
"""The table of docs/claims.md is of 1,000."""
LEVEL = math.floor(0.025 * 1024) / 1024
"""Of a sign-flip test over 2^10 assignments: 25 of 1,024 sums, 2.44%."""


def at_most(tests: int, worlds: int) -> float:
    """How often one of so many tests errs at most, with four standard errors."""
    share = tests * LEVEL
    return share + 4 * math.sqrt(share * (1 - share) / worlds)


@pytest.fixture
def quick_plans(monkeypatch) -> None:
    """The plans' configs made once instead of once a world, and nothing shown beside what is judged."""
    seeded, settings = (lru_cache(maxsize=None)(getattr(dst_lab.plans.plan, name)) for name in ("seeded", "settings"))

    for module in (
        "dst_lab.plans.plan",
        "dst_lab.claims.arms",
        "studies.paper.claims.sweeps",
    ):
        for name, made in (("seeded", seeded), ("settings", settings)):
            if hasattr(sys.modules[module], name):
                frozen = lambda first, second, made=made: made(*map(_frozen, (first, second)))  # noqa: E731
                monkeypatch.setattr(f"{module}.{name}", frozen)
    bare = [replace(rule, shown=()) for rule in RULES]
    for module in ("off_diagonal", "baselines"):
        monkeypatch.setattr(f"studies.paper.claims.{module}.RULES", bare)


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple | range) else value


def count(worlds: int, world: Any, *rules: Callable[[Rows], list[Verdict]]) -> dict[tuple[str, ...], list[float]]:
    """(claim, task, comparison or "" for the verdict) -> how often it was supported, and contradicted; printed too."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for number in range(worlds):
        rows = world(number=number).rows
        for verdict in [verdict for rule in rules for verdict in rule(rows)]:
            counts[verdict.claim, verdict.task, ""][verdict.verdict] += 1
            for c in verdict.comparisons:
                if c.judged:
                    counts[verdict.claim, verdict.task, c.name].update(supported=c.better, contradicted=c.worse)
    assert not any(counter["not tested"] for counter in counts.values())
    shares = {
        key: [counter[word] / worlds for word in ("supported", "contradicted")]
        for key, counter in sorted(counts.items())
    }
    print(f"\n{'claim':9} {'task':24} {'comparison':48} supported  contradicted, % of {worlds}")
    for key, (supported, contradicted) in shares.items():
        print(f"{key[0]:9} {key[1]:24} {key[2]:48} {100 * supported:9.1f} {100 * contradicted:9.1f}")
    return shares


@pytest.mark.slow
def test_without_any_truth_a_comparison_is_supported_in_one_of_forty_worlds(quick_plans, world) -> None:
    error = math.sqrt(LEVEL * (1 - LEVEL) / WORLDS)
    shares = count(WORLDS, world, judge_off_diagonal, judge_baselines)
    # Steps to a mark tie often, which makes their level lower.
    # C1 has one comparison with C2 in common.
    exact = list({key[1:]: both for key, both in shares.items() if key[0] in ("C1", "C2") and key[2]}.values())
    assert len(exact) == 3 + 9
    for supported, contradicted in exact:
        assert abs(supported - LEVEL) < 4 * error
        assert abs(contradicted - LEVEL) < 4 * error
    pooled = fmean(supported for supported, _ in exact)
    print(f"these {len(exact)} comparisons together: {100 * pooled:.2f}%; the test's own level is {100 * LEVEL:.2f}%")
    assert abs(pooled - LEVEL) < 4 * error / math.sqrt(3)  # those of a task share an arm
    for (claim, _, name), (supported, contradicted) in shares.items():
        # A verdict of C2 needs three at once; one of C1 needs two, and an optimum off the diagonal besides.
        assert supported < (LEVEL / 2 if claim == "C2" and not name else LEVEL + 4 * error)
        # One of two, or of three, contradicts.
        assert contradicted < at_most(1 if name else 2 if claim == "C1" else 3, WORLDS)


@pytest.mark.slow
def test_without_any_trend_none_is_found_more_often_than_that(quick_plans, world) -> None:
    worlds = 3 * WORLDS // 10
    shares = count(worlds, world, lambda rows: judge_effects(rows)[:2])
    assert len(shares) == 2 + 4
    for (_, _, name), (supported, contradicted) in shares.items():
        assert supported < at_most(1, worlds)
        assert contradicted < at_most(1 if name else 2, worlds)
    # Rank correlations of few values tie: their level is lower, but not nothing.
    trends = [share for (_, _, name), both in shares.items() if name for share in both]
    assert len(trends) == 8
    assert fmean(trends) > LEVEL / 2
