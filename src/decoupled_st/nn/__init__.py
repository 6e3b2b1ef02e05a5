"""Modules for people's networks."""

from decoupled_st.nn.chooser import Binary, Categorical, Sign
from decoupled_st.nn.codebook import Codebook
from decoupled_st.nn.fsq import FSQ
from decoupled_st.nn.logic.convolution import LogicConv2d, OrPool2d
from decoupled_st.nn.logic.gates import apply_gates
from decoupled_st.nn.logic.layer import GroupSum, LogicLayer
from decoupled_st.nn.logic.network import LogicNetwork
from decoupled_st.nn.logic.packed import LogicNetworks
from decoupled_st.nn.logic.thermometer import Thermometer
from decoupled_st.nn.logic.tree_network import LogicTreeNetwork
from decoupled_st.nn.logic.trees import LogicTrees, apply_trees
from decoupled_st.nn.logic.wiring import random_wiring, unique_wiring
from decoupled_st.nn.logic.zoo import logic_tree_net
from decoupled_st.nn.quantiser import Quantised
from decoupled_st.nn.residual_codebook import ResidualCodebook
from decoupled_st.nn.simvq import SimVQ
from decoupled_st.nn.top_k import Routed, Router, TopK

__all__ = [
    "FSQ",
    "Binary",
    "Categorical",
    "Codebook",
    "GroupSum",
    "LogicConv2d",
    "LogicLayer",
    "LogicNetwork",
    "LogicNetworks",
    "LogicTreeNetwork",
    "LogicTrees",
    "OrPool2d",
    "Quantised",
    "ResidualCodebook",
    "Routed",
    "Router",
    "Sign",
    "SimVQ",
    "Thermometer",
    "TopK",
    "apply_gates",
    "apply_trees",
    "logic_tree_net",
    "random_wiring",
    "unique_wiring",
]
