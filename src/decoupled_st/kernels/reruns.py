"""Passes that `torch.utils.checkpoint` runs again inside a backward pass: they must find what the first time found."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from decoupled_st.kernels import recomputed


def is_run_again(like: Tensor) -> Any:
    """True where a pass is run again; in compiled code, which asks when it runs and not when it is traced, a bool on
    the device of a tensor."""
    if not torch.compiler.is_compiling():
        return recomputed()
    return torch.ops.decoupled_st.is_run_again(like)


@torch.no_grad()
def write(places: Sequence[Tensor], values: Sequence[Tensor], again: "bool | Tensor") -> None:
    """Write values into buffers, but not where a pass is run again."""
    for place, value in zip(places, values, strict=True):
        if value is not place and again is not True:
            place.copy_(value if again is False else torch.where(again, place, value))


def first_value(value: Tensor, kept: Tensor, again: "bool | Tensor") -> Tensor:
    """A value; where a pass is run again, the number that its first time has kept. Many values follow from the logits,
    whenever they are made."""
    if again is False or (isinstance(value, Tensor) and value.numel() != 1):
        return value
    value = torch.as_tensor(value, dtype=kept.dtype, device=kept.device).detach()
    if again is True:
        return value.copy_(kept)  # as many copies as the first time has made, which a selective checkpoint counts
    first: Tensor = torch.ops.decoupled_st.first_run(value, kept)
    return first


def _first_run(value: Tensor, kept: Tensor) -> Tensor:
    """An operator of our own, which no compiler computes twice: the backward pass would find another state."""
    return kept.clone().expand_as(value).contiguous() if recomputed() else value.clone()


_library = torch.library.Library("decoupled_st", "FRAGMENT")
# They ask what is under way: not to be recorded once and replayed.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name))
_library.define("first_run(Tensor tau, Tensor last) -> Tensor", tags=_TAGS)
_library.impl("first_run", _first_run, "CompositeExplicitAutograd")
_library.define("is_run_again(Tensor like) -> Tensor", tags=_TAGS)
_library.impl(
    "is_run_again",
    lambda like: torch.full((), recomputed(), dtype=torch.bool, device=like.device),
    "CompositeExplicitAutograd",
)
torch.library.register_fake("decoupled_st::is_run_again", lambda like: like.new_empty((), dtype=torch.bool))
torch.library.register_fake("decoupled_st::first_run", lambda tau, last: torch.empty_like(tau))
