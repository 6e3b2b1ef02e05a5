"""Temperatures that set themselves: does one rule, without a number to tune, do as well as tuned constants?"""

from studies.temperatures.study import TEMPERATURES

__all__ = ["TEMPERATURES"]
