"""The paper on decoupled straight-through estimators: its three tasks, and its claims."""

from studies.paper.study import PAPER

__all__ = ["PAPER"]
