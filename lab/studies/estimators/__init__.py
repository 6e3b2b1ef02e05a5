"""Straight-through estimators side by side, each tuned with the same number of settings."""

from studies.estimators.study import ESTIMATORS

__all__ = ["ESTIMATORS"]
