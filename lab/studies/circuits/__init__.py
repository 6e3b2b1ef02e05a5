"""Logic networks of every published size, as accurate as the published ones, and as circuits."""

from studies.circuits.study import CIRCUITS

__all__ = ["CIRCUITS"]
