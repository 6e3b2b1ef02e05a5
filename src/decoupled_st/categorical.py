"""Straight-through estimators of a categorical choice: logits in, exact one-hot out.

Each function takes the logits of K categories along `dim` and returns a tensor of their shape and dtype that is
exactly one-hot along `dim`. They differ in how the category is chosen and in the gradient sent to the logits. Two are
relaxations and no choices, for reference: `soft` and `gumbel_soft`. `top_k` chooses k categories: k ones.

Common keyword arguments:
    dim: where the categories lie.
    mask: bool, True = allowed, broadcastable to the logits. A masked category, like one with logit -inf, is never
        chosen and gets zero gradient. A row with one category allowed is certain, and its gradient zero where the
        surrogate is a distribution. A row with nothing allowed gives zeros and gets zero gradient; a row with a NaN
        or +inf that is allowed gives NaN, and NaN for its gradient wherever the surrogate is a distribution.
    generator: the source of the draw. `torch.compile(fullgraph=True)` cannot trace one, and `torch.utils.checkpoint`
        does not restore one, so that its gradient would be wrong: pass `noise` there.
    noise: standard Gumbel noise of the logits' shape, instead of drawing it.
    grad_scale: float or tensor; multiplies the gradient sent to the logits and nothing else (second derivatives are not
        defined for it).

Temperatures are floats, or tensors that broadcast to the logits with size 1 along `dim`: one call serves many runs.
The values inside a tensor are not checked. Arithmetic is in float32 or better whatever the dtype.
"""

from decoupled_st.estimators.clipped_ste import categorical as clipped_ste
from decoupled_st.estimators.decoupled import categorical as decoupled
from decoupled_st.estimators.gapped_ste import categorical as gapped_ste
from decoupled_st.estimators.gumbel_rao import categorical as gumbel_rao
from decoupled_st.estimators.gumbel_soft import categorical as gumbel_soft
from decoupled_st.estimators.gumbel_ste import categorical as gumbel_ste
from decoupled_st.estimators.identity_ste import categorical as identity_ste
from decoupled_st.estimators.reinmax import categorical as reinmax
from decoupled_st.estimators.soft import categorical as soft
from decoupled_st.estimators.softmax_ste import categorical as softmax_ste
from decoupled_st.estimators.top_k import categorical as top_k

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
    "top_k",
]
__test__ = {name: globals()[name] for name in __all__}  # where doctest finds the functions' examples


def __dir__() -> list[str]:
    return __all__
