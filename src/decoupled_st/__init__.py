"""Straight-through estimators with separate temperatures for the forward sample and the backward gradient."""

from decoupled_st import (
    binary,
    categorical,
    circuits,
    codebook,
    diagnostics,
    distributions,
    estimators,
    masked,
    nn,
    noise,
    score_function,
    temperatures,
)
from decoupled_st.estimators import (
    ClippedSTE,
    Decoupled,
    Estimator,
    GappedSTE,
    GumbelRao,
    GumbelSoft,
    GumbelSTE,
    IdentitySTE,
    ReinMax,
    Soft,
    SoftmaxSTE,
    from_dict,
    straight_through,
)
from decoupled_st.kernels import use_kernels
from decoupled_st.temperatures import SelfTempered

__version__ = "0.1.0"

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
    "SelfTempered",
    "Soft",
    "SoftmaxSTE",
    "binary",
    "categorical",
    "circuits",
    "codebook",
    "diagnostics",
    "distributions",
    "estimators",
    "from_dict",
    "masked",
    "nn",
    "noise",
    "score_function",
    "straight_through",
    "temperatures",
    "use_kernels",
]
