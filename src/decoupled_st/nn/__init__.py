"""Modules for people's networks."""

from decoupled_st.nn.binary import Binary
from decoupled_st.nn.categorical import Categorical
from decoupled_st.nn.codebook import Codebook, Quantised
from decoupled_st.nn.logic.gates import apply_gates
from decoupled_st.nn.logic.layer import GroupSum, LogicLayer
from decoupled_st.nn.logic.network import LogicNetwork
from decoupled_st.nn.residual_codebook import ResidualCodebook

__all__ = [
    "Binary",
    "Categorical",
    "Codebook",
    "GroupSum",
    "LogicLayer",
    "LogicNetwork",
    "Quantised",
    "ResidualCodebook",
    "apply_gates",
]
