"""The method: one file per estimator, with its equation, its two functions and its value; and their registry."""

from decoupled_st.estimators.clipped_ste import ClippedSTE
from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.gapped_ste import GappedSTE
from decoupled_st.estimators.gumbel_rao import GumbelRao
from decoupled_st.estimators.gumbel_soft import GumbelSoft
from decoupled_st.estimators.gumbel_ste import GumbelSTE
from decoupled_st.estimators.identity_ste import IdentitySTE
from decoupled_st.estimators.reinmax import ReinMax
from decoupled_st.estimators.soft import Soft
from decoupled_st.estimators.softmax_ste import SoftmaxSTE
from decoupled_st.estimators.spec import Estimator, check_estimator, from_dict, names, register, registered
from decoupled_st.estimators.surrogate import straight_through

__all__ = [
    "ClippedSTE",
    "Decoupled",
    "Estimator",
    "GappedSTE",
    "GumbelRao",
    "GumbelSTE",
    "GumbelSoft",
    "IdentitySTE",
    "ReinMax",
    "Soft",
    "SoftmaxSTE",
    "check_estimator",
    "from_dict",
    "names",
    "register",
    "registered",
    "straight_through",
]
