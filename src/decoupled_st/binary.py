"""Straight-through estimators of a binary neuron: one log-odds in, exactly 0 or 1 out.

The neuron is the two-way choice between logits (0, l). Each function takes log-odds of any shape and returns a tensor
of that shape and dtype. A log-odds of +-inf is a certain 1 or 0 with zero gradient; NaN gives NaN.

Common keyword arguments:
    generator: the source of the draw. `torch.compile(fullgraph=True)` cannot trace one, and `torch.utils.checkpoint`
        does not restore one, so that its gradient would be wrong: pass `noise` there.
    noise: standard logistic noise of the logits' shape, instead of drawing it.
    grad_scale: float or tensor; multiplies the gradient sent to the logits and nothing else.

Temperatures are floats, or tensors that broadcast to the logits; the values inside a tensor are not checked.
"""

from decoupled_st.estimators.clipped_ste import binary as clipped_ste
from decoupled_st.estimators.decoupled import binary as decoupled
from decoupled_st.estimators.gapped_ste import binary as gapped_ste
from decoupled_st.estimators.gumbel_rao import binary as gumbel_rao
from decoupled_st.estimators.gumbel_soft import binary as gumbel_soft
from decoupled_st.estimators.gumbel_ste import binary as gumbel_ste
from decoupled_st.estimators.identity_ste import binary as identity_ste
from decoupled_st.estimators.reinmax import binary as reinmax
from decoupled_st.estimators.soft import binary as soft
from decoupled_st.estimators.softmax_ste import binary as softmax_ste

__all__ = [
    "clipped_ste",
    "decoupled",
    "gapped_ste",
    "gumbel_rao",
    "gumbel_soft",
    "gumbel_ste",
    "identity_ste",
    "reinmax",
    "soft",
    "softmax_ste",
]
__test__ = {name: globals()[name] for name in __all__}  # where doctest finds the functions' examples


def __dir__() -> list[str]:
    return __all__
