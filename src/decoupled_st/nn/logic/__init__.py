"""Networks of logic gates: the gates, their wiring, a layer and a whole network, each of these plain and fused."""

from decoupled_st.nn.logic.gates import apply_gates as apply_gates
from decoupled_st.nn.logic.layer import GroupSum as GroupSum
from decoupled_st.nn.logic.layer import LogicLayer as LogicLayer
from decoupled_st.nn.logic.network import LogicNetwork as LogicNetwork
