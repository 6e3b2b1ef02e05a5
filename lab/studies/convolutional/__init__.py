"""Convolutional logic networks of published sizes, as accurate as the published ones, trained in minutes."""

from studies.convolutional.study import CONVOLUTIONAL

__all__ = ["CONVOLUTIONAL"]
