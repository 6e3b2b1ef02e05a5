"""Straight-through estimators with separate temperatures for the forward sample and the backward gradient."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from decoupled_st import (
    binary,
    categorical,
    codebook,
    diagnostics,
    estimators,
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

if TYPE_CHECKING:
    from decoupled_st import circuits, distributions, masked

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


def __getattr__(name: str) -> Any:
    # Imported at their first use: torch.distributions alone takes half as long to load as all the rest.
    if name in ("circuits", "distributions", "masked"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
