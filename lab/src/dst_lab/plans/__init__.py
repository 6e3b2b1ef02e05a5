"""Which runs come next: functions from what is known to what is wanted. No store."""

from dst_lab.plans.adaptive import Adaptive
from dst_lab.plans.plan import FRESH_SEEDS, Confirm, Following, Grid, Lookup, Measured, Plan, Sequential, Several
from dst_lab.plans.recipes import Recipe, Recipes
from dst_lab.runs import FRESH

__all__ = [
    "FRESH",
    "FRESH_SEEDS",
    "Adaptive",
    "Confirm",
    "Following",
    "Grid",
    "Lookup",
    "Measured",
    "Plan",
    "Recipe",
    "Recipes",
    "Sequential",
    "Several",
]
