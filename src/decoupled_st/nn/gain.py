"""Warnings where next to no gradient will reach x through its codes, or where a rule draws almost any of them."""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from decoupled_st.codebook.distribution import distribution
from decoupled_st.codebook.gain import straight_through_gain
from decoupled_st.estimators.operations.rows import scattered

_DEAF = 1e-5
"""A gain below which nothing is learned through the codes."""
_ANY = 0.5
"""A share of the codes: where a draw is effectively among more, the scores have no say."""


def check_gain(
    rows: Tensor, codes: Tensor, taus: Mapping[str, Any], *, metric: str, mask: Tensor | None, ruled: bool = False
) -> None:
    """Warn where next to no gradient will reach x, or where a rule that sets the temperatures (`ruled`) draws almost
    any code; of rows [..., D], or [..., H, D] with heads, a few are asked."""
    tau = taus.get("tau_b", taus.get("tau"))
    if tau is None or rows.numel() == 0 or rows.is_meta:
        return
    every = rows.reshape(-1, *rows.shape[1 - codes.dim() :])
    few = every[scattered(len(every), 64, rows.device)]
    if ruled and (drawn := float(taus.get("tau_f", 0.0))) > 0:
        with torch.no_grad():
            among = distribution(few, codes, tau=drawn, metric=metric, mask=mask).entropy.exp().median().item()
        if among > _ANY * codes.shape[-2]:
            warnings.warn(
                f"the rule draws at {drawn:.3g}, where the scores of these codes differ by less: a draw is effectively "
                f"among {among:.0f} of {codes.shape[-2]} codes. Make x and the codes larger, take "
                "metric='cosine', or constants: Decoupled(tau_f=0.0, tau_b=..)",
                stacklevel=_level_of_caller(),
            )
    generator = torch.Generator(rows.device).manual_seed(0)
    gain = straight_through_gain(few, codes, tau_b=tau, metric=metric, mask=mask, generator=generator).median().item()
    if gain < _DEAF:
        own = "" if ruled else "tau_b, "
        warnings.warn(
            f"the gradient that reaches x is {gain:.1e} of the one that reaches q (median of {len(few)} rows): x "
            f"will learn next to nothing through these codes. Call initialise(x), or change {own}the metric or the "
            f"codes' scale (now tau_b={float(tau):.3g}, metric={metric!r}); "
            "dst.diagnostics.straight_through_gain measures it",
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """The `stacklevel`, for whoever asks, of the first line outside this library and torch: modules may hold modules,
    and torch calls each through frames of its own."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _WITHIN:
        level, frame = level + 1, frame.f_back
    return level


_WITHIN = (__name__.partition(".")[0], "torch")
