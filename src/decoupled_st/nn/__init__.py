"""Modules for people's networks."""

from decoupled_st.nn.binary import Binary
from decoupled_st.nn.categorical import Categorical
from decoupled_st.nn.logic import GroupSum, LogicLayer, apply_gates

__all__ = ["Binary", "Categorical", "GroupSum", "LogicLayer", "apply_gates"]
