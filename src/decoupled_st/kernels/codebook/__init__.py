"""A codebook's choice, its gradient and its distribution, fused, in Triton."""

from decoupled_st.kernels.codebook.backward import pull_back
from decoupled_st.kernels.codebook.choice import choose, moments, nearest

__all__ = ["choose", "moments", "nearest", "pull_back"]
