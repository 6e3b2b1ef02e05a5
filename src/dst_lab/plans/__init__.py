"""Which runs come next."""

from dst_lab.plans.adaptive import Adaptive
from dst_lab.plans.halving import Halving
from dst_lab.plans.plan import Grid, Lookup, Plan, Several
from dst_lab.plans.sequential import Sequential

__all__ = ["Adaptive", "Grid", "Halving", "Lookup", "Plan", "Sequential", "Several"]
