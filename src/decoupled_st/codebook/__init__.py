"""Choices among the rows of a codebook of any size, without the N x K scores."""

from decoupled_st.codebook.choice import decoupled, gumbel_ste, identity_ste, softmax_ste
from decoupled_st.codebook.distribution import Distribution, distribution, log_prob

__all__ = ["Distribution", "decoupled", "distribution", "gumbel_ste", "identity_ste", "log_prob", "softmax_ste"]
