"""A thousand worlds without any difference: how often each claim is supported all the same."""

import math
import sys
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest

import dst_lab.plans.plan
from dst_lab.claims.baselines import judge_baselines
from dst_lab.claims.effects import judge_effects
from dst_lab.claims.off_diagonal import judge_off_diagonal
from dst_lab.claims.tasks import TASKS

WORLDS = 1000
LEVEL = math.floor(0.025 * 1024) / 1024
"""Of a sign-flip test over 2^10 assignments: 25 of 1,024 sums, 2.44%."""
ERROR = math.sqrt(LEVEL * (1 - LEVEL) / WORLDS)
EXACT = ("C1", "C2")
"""Claims whose every comparison has that level; that of steps and of rank correlations, which tie, is lower."""


@pytest.fixture
def quick_plans(monkeypatch) -> None:
    """The plans' configs made once instead of once a world, and nothing shown beside what is judged."""
    seeded, settings = (lru_cache(maxsize=None)(getattr(dst_lab.plans.plan, name)) for name in ("seeded", "settings"))

    for module in ("plans.plan", "plans.sequential", "claims.rows", "claims.effects"):
        for name, made in (("seeded", seeded), ("settings", settings)):
            if hasattr(sys.modules[f"dst_lab.{module}"], name):
                frozen = lambda first, second, made=made: made(*map(_frozen, (first, second)))  # noqa: E731
                monkeypatch.setattr(f"dst_lab.{module}.{name}", frozen)
    bare = [replace(rule, beside=()) for rule in TASKS]
    for module in ("off_diagonal", "baselines"):
        monkeypatch.setattr(f"dst_lab.claims.{module}.TASKS", bare)


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple | range) else value


@pytest.mark.slow
def test_without_any_truth_a_claim_is_supported_in_one_of_forty_worlds(quick_plans, world) -> None:
    counts: Counter[tuple[str, ...]] = Counter()
    for number in range(WORLDS):
        rows = world(number=number).rows
        for verdict in [*judge_off_diagonal(rows), *judge_baselines(rows), *judge_effects(rows)[:2]]:
            key = verdict.claim, verdict.task
            counts[(*key, "", verdict.verdict)] += 1
            for comparison in verdict.comparisons:
                if comparison.judged:
                    counts[(*key, comparison.name, "supported")] += comparison.better
                    counts[(*key, comparison.name, "contradicted")] += comparison.worse
    assert not [key for key in counts if key[3] == "not tested"]
    keys = sorted({key[:3] for key in counts})
    print(f"\n{'claim':9} {'task':24} {'comparison':48} supported  contradicted, % of {WORLDS}")
    for key in keys:
        supported, contradicted = (counts[(*key, word)] / WORLDS for word in ("supported", "contradicted"))
        print(f"{key[0]:9} {key[1]:24} {key[2]:48} {100 * supported:9.1f} {100 * contradicted:9.1f}")
        if key[0] in EXACT and key[2]:
            assert abs(supported - LEVEL) < 4 * ERROR, (key, supported)
            assert abs(contradicted - LEVEL) < 4 * ERROR, (key, contradicted)
        else:
            assert supported < LEVEL + 4 * ERROR, (key, supported)
    exact = [counts[(*key, "supported")] for key in keys if key[0] in EXACT and key[2]]
    assert len(exact) == 3 + 9
    pooled = sum(exact) / len(exact) / WORLDS
    print(f"all {len(exact)} comparisons together: {100 * pooled:.2f}%; the test's own level is {100 * LEVEL:.2f}%")
    assert abs(pooled - LEVEL) < 4 * ERROR / math.sqrt(len(exact) / 3)  # those of a task share an arm
