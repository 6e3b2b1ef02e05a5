"""A trained logic network as a circuit: simplify it, run it bit by bit, write it as C, Verilog or AIGER."""

from decoupled_st.circuits.circuit import Circuit
from decoupled_st.circuits.compiled import CompiledCircuit
from decoupled_st.circuits.formats.files import load, write_images
from decoupled_st.circuits.loops import LoopedCircuit
from decoupled_st.circuits.network import from_network

__all__ = ["Circuit", "CompiledCircuit", "LoopedCircuit", "from_network", "load", "write_images"]
