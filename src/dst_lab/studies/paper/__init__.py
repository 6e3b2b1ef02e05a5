"""The paper on decoupled straight-through estimators: its three tasks, and its claims."""

from dst_lab.studies.paper.study import PAPER

__all__ = ["PAPER"]
