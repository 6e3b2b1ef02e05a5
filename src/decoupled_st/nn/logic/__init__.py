"""Networks of logic gates: the gates, their wiring, a layer, and whole networks in packed bits."""

from decoupled_st.nn.logic.gates import apply_gates as apply_gates
from decoupled_st.nn.logic.layer import GroupSum as GroupSum
from decoupled_st.nn.logic.layer import LogicLayer as LogicLayer
from decoupled_st.nn.logic.network import LogicNetwork as LogicNetwork
from decoupled_st.nn.logic.packed import LogicNetworks as LogicNetworks
from decoupled_st.nn.logic.wiring import random_wiring as random_wiring
from decoupled_st.nn.logic.wiring import unique_wiring as unique_wiring
