"""Modules for people's networks."""

from decoupled_st.nn.binary import Binary
from decoupled_st.nn.categorical import Categorical
from decoupled_st.nn.codebook import Codebook, Quantised, ResidualCodebook
from decoupled_st.nn.gates import apply_gates
from decoupled_st.nn.logic import GroupSum, LogicLayer

__all__ = [
    "Binary",
    "Categorical",
    "Codebook",
    "GroupSum",
    "LogicLayer",
    "Quantised",
    "ResidualCodebook",
    "apply_gates",
]
