"""A training function of your own, tuned with the laboratory's plans and store."""

from dst_lab.tuning.tune import Tuned, tune

__all__ = ["Tuned", "tune"]
