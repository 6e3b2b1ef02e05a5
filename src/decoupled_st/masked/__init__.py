"""Masked (absorbing-state) diffusion with a gradient: every model that reveals tokens step by step.

A state is [B, L, K + 1], one-hot: K categories, and the mask last. A model takes a state and returns logits [B, L, K],
or [B, L, K + 1], of which the last are not used.
"""

from decoupled_st.masked.embedded import Embedded
from decoupled_st.masked.guide import guide
from decoupled_st.masked.objective import expected_reward
from decoupled_st.masked.rollout import Rollout, rollout
from decoupled_st.masked.step import from_ids, kl, log_prob, reveal, start

__all__ = [
    "Embedded",
    "Rollout",
    "expected_reward",
    "from_ids",
    "guide",
    "kl",
    "log_prob",
    "reveal",
    "rollout",
    "start",
]
