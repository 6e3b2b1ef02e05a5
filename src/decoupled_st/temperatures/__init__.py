"""Temperatures over training: schedules, and rules that set tau_f and tau_b from what they measure."""

from decoupled_st.temperatures.confidence import Confidence
from decoupled_st.temperatures.registry import from_dict, register, registered
from decoupled_st.temperatures.rule import Rule, State, Taus, View
from decoupled_st.temperatures.schedule import Schedule, Scheduled
from decoupled_st.temperatures.self_tempered import SelfTempered, scale, usage
from decoupled_st.temperatures.tempered import Tempered

__all__ = [
    "Confidence",
    "Rule",
    "Schedule",
    "Scheduled",
    "SelfTempered",
    "State",
    "Taus",
    "Tempered",
    "View",
    "from_dict",
    "register",
    "registered",
    "scale",
    "usage",
]
