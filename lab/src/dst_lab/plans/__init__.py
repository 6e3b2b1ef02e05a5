"""Which runs come next: functions from what is known to what is wanted. No store."""

from dst_lab.plans.adaptive import Adaptive
from dst_lab.plans.following import FRESH_SEEDS, Confirm, Following
from dst_lab.plans.halving import Halving
from dst_lab.plans.plan import Early, Grid, Lookup, Measured, Plan, Several
from dst_lab.plans.recipes import Recipe, Recipes
from dst_lab.plans.sequential import Sequential
from dst_lab.runs import FRESH

__all__ = [
    "FRESH",
    "FRESH_SEEDS",
    "Adaptive",
    "Confirm",
    "Early",
    "Following",
    "Grid",
    "Halving",
    "Lookup",
    "Measured",
    "Plan",
    "Recipe",
    "Recipes",
    "Sequential",
    "Several",
]
