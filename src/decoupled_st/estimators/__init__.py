"""The method: estimators as functions (`categorical`, `binary`) and as values."""

from decoupled_st.estimators import binary, categorical
from decoupled_st.estimators.spec import Decoupled, Estimator, GumbelSTE, IdentitySTE, Soft, SoftmaxSTE, from_dict
from decoupled_st.estimators.straight_through import straight_through

__all__ = [
    "Decoupled",
    "Estimator",
    "GumbelSTE",
    "IdentitySTE",
    "Soft",
    "SoftmaxSTE",
    "binary",
    "categorical",
    "from_dict",
    "straight_through",
]
