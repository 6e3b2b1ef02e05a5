"""What the plain estimators do to scores: rows of categories, and single log-odds."""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.operations.straight_through import check_logits, to_compute
from decoupled_st.estimators.operations.temperature import Temperature, check_broadcast


class Rows(NamedTuple):
    """Logits less the largest of their row."""

    l: Tensor
    largest: Tensor
    """Where it is, with size 1 along the categories."""
    empty: Tensor | None
    """Which rows have nothing to choose from; None where every row is known to be finite at its largest."""


def scattered(count: int, few: int, device: torch.device) -> Tensor:
    """The places of a few of so many rows, from all over them: one in each of as many equal parts.

    The first rows would be one sample, or the edge of an image, and evenly spaced ones may be the same place of every
    sequence or image. Within their parts these move by the golden ratio, which no layout has a period in common with.
    """
    if device.type == "cpu" and not kernels.traced():
        return _scattered_before(count, few)  # making them takes longer than what they are for
    return _scattered(count, few, device)


@lru_cache(maxsize=64)
def _scattered_before(count: int, few: int) -> Tensor:
    with torch.inference_mode(False):  # they may be needed elsewhere later
        return _scattered(count, few, torch.device("cpu"))


def _scattered(count: int, few: int, device: torch.device) -> Tensor:
    part = torch.arange(few + 1, device=device)
    start = part * count // few
    return start[:-1] + ((part[:-1] * _GOLDEN % 2**32) * start.diff() >> 32)


_GOLDEN = 2654435769  # 2^32 / 1.618...; the same in the kernel of temperatures


def check_categories(logits: Tensor, dim: int, mask: Tensor | None) -> int:
    """`dim` counted from the end, once logits, `dim` and mask fit together."""
    check_logits(logits)
    if not isinstance(dim, int) and not hasattr(dim, "__index__"):  # torch.compile follows the first for any number
        raise TypeError(f"dim must be an integer, got dim={dim!r}")
    if not -logits.dim() <= dim < logits.dim():
        raise ValueError(f"dim must name a dimension of the logits, got dim={dim} for shape {tuple(logits.shape)}")
    if logits.shape[dim] == 0:
        raise ValueError(f"there must be at least one category, got shape {tuple(logits.shape)} with dim={dim}")
    check_mask(mask, logits)
    return dim - logits.dim() if dim >= 0 else dim


def check_mask(mask: Tensor | None, logits: Tensor) -> None:
    """Refuse a mask that is not of bools, or that does not broadcast to the logits."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(f"mask must be a bool tensor (True = allowed), got {given}")
    check_broadcast("mask", mask, logits)


def allowed(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits in the dtype of computation, with -inf where the mask forbids."""
    l = to_compute(logits, logits)
    return l if mask is None else l.masked_fill(~mask, -math.inf)


def centred(l: Tensor, dim: int) -> Rows:
    """The same choice and surrogate, without what rounding and overflow would do to large logits.

    A row with a NaN or +inf becomes NaN: an error upstream must not come out as a plausible sample.
    """
    top, largest = l.detach().max(dim, keepdim=True)
    if _may_look(top):
        less = l - top
        # Unequal to itself where NaN: inf - inf, in a row that is empty or has a +inf, or a NaN of the caller's.
        if torch.equal(less, less):
            return Rows(less, largest, None)
    empty = top == -math.inf
    top = top.masked_fill(empty, 0.0).masked_fill(top == math.inf, math.nan)
    return Rows(l - top, largest, empty)


def filled(scores: Tensor, empty: Tensor | None) -> Tensor:
    """The scores with zeros in empty rows, which then have no gradient."""
    return scores if empty is None else scores.masked_fill(empty, 0.0)


def drawn(tau: Temperature) -> bool:
    """True where a choice at this temperature is drawn, or may be; at 0 it is the argmax."""
    return isinstance(tau, Tensor) or tau > 0


def perturbed(scores: Tensor, tau: Temperature, noise: Tensor) -> Tensor:
    """`scores + tau * noise`: orders categories as scores / tau + noise does, and at tau = 0 is the argmax."""
    if not isinstance(tau, Tensor):
        return torch.add(scores, noise, alpha=tau)
    return scores + (tau * noise).masked_fill(tau == 0, 0.0)  # and not 0 * inf


def one_hot(scores: Tensor, dim: int, *, finite: bool = False) -> tuple[Tensor, Tensor]:
    """The argmax as a one-hot, and as an index. An empty row gives zeros, one with a NaN or +inf NaN; `finite` says
    that there are none."""
    if finite:
        index = scores.argmax(dim, keepdim=True)
    else:
        top, index = scores.max(dim, keepdim=True)
        finite = _may_look(top) and math.isfinite(top.sum())
    zeros = torch.zeros_like(scores)
    # torch.func.vmap and DTensor know the one only, memory is saved by the other.
    plain = type(zeros) is Tensor and not kernels.transformed()
    hard = zeros.scatter_(dim, index, 1.0) if plain else zeros.scatter(dim, index, 1.0)
    if not finite:
        hard.masked_fill_(top == -math.inf, 0.0).masked_fill_(~(top < math.inf), math.nan)
    return hard, index


def softmax(tempered: Tensor, largest: Tensor, dim: int) -> Tensor:
    """A function with the derivative of `softmax(tempered)`, accurate where one category has all but everything.

        p_i for every category but the largest, k;   p_k - sum of all p = -(sum of the others) for it

    Its gradient, p_i (h_i - sum p h) with h = g - g_k, has no difference of nearly equal numbers: the plain one loses
    g_k - sum p g, and with it the gradient of the one category that matters, once p_k rounds to 1.
    """
    p = torch.softmax(tempered, dim)
    return p.scatter_add(dim, largest, -p.sum(dim, keepdim=True))


def shifted(l: Tensor, to: Tensor) -> Tensor:
    """The value of `to` with the derivative of the logits; -inf stays itself."""
    fixed = l.detach()
    return l + (to.detach() - fixed).masked_fill(fixed.isinf(), 0.0)


def threshold(scores: Tensor) -> Tensor:
    """1 where the score is above 0; a tie is 0, as the argmax of (0, l) takes the first; NaN stays NaN."""
    return (scores > 0).to(scores.dtype).masked_fill_(scores.isnan(), math.nan)


def sigmoid(tempered: Tensor) -> Tensor:
    """A function with the derivative of `sigmoid(tempered)`, accurate in both tails.

        sigmoid(t) where t <= 0,   -sigmoid(-t) = sigmoid(t) - 1 where t > 0

    Its derivative is p (1 - p) with p <= 1/2; from a p that rounds to 1 nothing would be left.
    """
    flip = 1 - 2 * (tempered.detach() > 0).to(torch.int8)
    return torch.sigmoid(tempered * flip) * flip


def _may_look(values: Tensor) -> bool:
    """True where looking at values is cheaper than being careful: on a CPU, where no device is waited for."""
    return type(values) is Tensor and values.is_cpu and not kernels.traced()
