"""Temperatures: what may be passed as one, and the division of logits by it."""

import math
import operator
from typing import TypeAlias

import torch
from torch import Tensor

from decoupled_st.estimators.operations.straight_through import to_compute

Temperature: TypeAlias = float | Tensor
COMMON = (1e-30, 1e30)
"""Between these a number is a temperature and a scale in every dtype of computation."""
_LOUDEST = 1e3
"""No noise of any dtype is louder: Gumbel noise from float64 ends below 750."""


def check_float(name: str, value: object, *, zero: bool = False, why: str = "") -> float:
    """The temperature as a float; `zero` says whether 0 is one, or `why` it is not."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a number here, got {type(value).__name__} "
            "(tensor temperatures go to the functions in `categorical` and `binary`)"
        )
    tau = float(value)  # type: ignore[arg-type]
    if not 0 <= tau < math.inf or (tau == 0 and not zero):
        bound = "at least 0" if zero else "above 0"
        raise ValueError(f"{name} must be finite and {bound}, got {name}={tau}" + (f": {why}" if why else ""))
    return tau


def check(
    name: str, tau: Temperature, logits: Tensor, dim: int | None = None, *, zero: bool = False, why: str = ""
) -> Temperature:
    """A temperature for `logits`: a checked float, or a tensor whose shape (not its values) is checked.

    `dim`, counted from the end, is where the categories lie; a tensor must have size 1 there.

    Values inside a tensor are not looked at: that would wait for the device at every call.
    """
    if type(tau) is float and COMMON[0] < tau < COMMON[1]:
        return tau
    if not isinstance(tau, Tensor):
        _check_number(name, tau)
        return _held(
            name, check_float(name, tau, zero=zero, why=why), torch.promote_types(logits.dtype, torch.float32), zero
        )
    _check_real(name, tau)
    check_broadcast(name, tau, logits)
    if dim is not None and tau.dim() >= -dim and tau.shape[dim] != 1:
        raise ValueError(
            f"{name} must have size 1 along dim {dim}, where the categories lie: "
            f"{name} has shape {tuple(tau.shape)}, logits {tuple(logits.shape)}"
        )
    return to_compute(tau, logits)


def check_broadcast(name: str, value: Tensor, logits: Tensor) -> None:
    """Refuse a tensor that does not broadcast to the logits' shape, or that would enlarge it."""
    ours, theirs = tuple(value.shape), tuple(logits.shape)
    pairs = zip(ours[::-1], theirs[::-1])  # noqa: B905, since torch 2.6 cannot trace strict=False
    if len(ours) > len(theirs) or any(a not in (1, b) for a, b in pairs):
        raise ValueError(f"{name} must broadcast to the logits: {name} has shape {ours}, logits {theirs}")


def check_scale(grad_scale: float | Tensor, logits: Tensor) -> float | Tensor:
    """`grad_scale` as a float that is finite in the dtype of computation, or a detached tensor that broadcasts to the
    logits."""
    if isinstance(grad_scale, Tensor):
        _check_real("grad_scale", grad_scale)
        check_broadcast("grad_scale", grad_scale, logits)
        return to_compute(grad_scale.detach(), logits)
    if type(grad_scale) is float and COMMON[0] < abs(grad_scale) < COMMON[1]:
        return grad_scale
    _check_number("grad_scale", grad_scale)
    scale, dtype = float(grad_scale), torch.promote_types(logits.dtype, torch.float32)
    if not abs(scale) <= torch.finfo(dtype).max:
        raise ValueError(f"grad_scale must be finite in {dtype}, got grad_scale={scale}")
    return scale


def _held(name: str, tau: float, dtype: torch.dtype, zero: bool) -> float:
    """Refuse a temperature that would become infinite in the dtype of computation, itself or times noise, or 0 where
    that is none."""
    most, least = torch.finfo(dtype).max / _LOUDEST, torch.finfo(dtype).tiny
    if tau > most or (tau < least and not zero):
        bound = f"at most {most:.2g}" + ("" if zero else f" and at least {least:.2g}")
        raise ValueError(f"{name} must be {bound} in {dtype}, got {name}={tau}")
    return tau


def _check_number(name: str, value: object) -> None:
    """Refuse what is neither tensor nor number, where either would do."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a number or a torch tensor that broadcasts to the logits, got {type(value).__name__}"
        )


def _check_real(name: str, value: Tensor) -> None:
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")


def is_number(value: object) -> bool:
    """True where `value` is a float, or turns into one as NumPy's scalars do; arrays, which have dimensions, do not."""
    if isinstance(value, (float, int)):
        return True
    other = isinstance(value, (Tensor, complex)) or getattr(value, "ndim", 0) > 0
    return hasattr(value, "__float__") and not other


def whole_number(value: object) -> int | None:
    """A whole number, NumPy's too, as an int; None where it is none, as 2.0 and True are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def temper(logits: Tensor, tau: Temperature, grad_scale: float | Tensor) -> tuple[Tensor, float]:
    """`logits / tau`, and the part of `grad_scale` that is left for the output.

    Two floats: dividing by a float keeps nothing for backward, and a float commutes with every Jacobian, so the
    scale goes to the output. With a tensor it must act on the logits alone (not on a learned tau, not before the
    Jacobian), and logits whose quotient is infinite must stay out of tau's gradient, where they would be 0 * inf.
    """
    if isinstance(tau, float) and isinstance(grad_scale, float):
        return logits / tau, grad_scale
    fixed_tau = tau.detach() if isinstance(tau, Tensor) else tau
    quotient = logits.detach() / fixed_tau
    infinite = quotient.isinf()
    finite = logits.masked_fill(infinite, 0.0)
    fixed = finite.detach()
    finite = fixed + (finite - fixed) * grad_scale
    # The factor is 1; its derivative, -1/tau, is applied to a sum of small numbers. logits / tau^2 would be infinite.
    return torch.where(infinite, quotient, finite / fixed_tau * (fixed_tau / tau)), 1.0


def fixed_path(logits: Tensor, tau: Temperature, grad_scale: float | Tensor) -> tuple[Tensor, float]:
    """Zeros with the derivative of `logits / tau`, and the part of `grad_scale` that is left for the output: for a
    gradient that is a fixed linear map of the one coming in. Infinite logits get none."""
    finite = logits.masked_fill(logits.detach().isinf(), 0.0)
    path = finite - finite.detach()
    if isinstance(tau, float) and isinstance(grad_scale, float):
        return path / tau, grad_scale
    return path * grad_scale / (tau.detach() if isinstance(tau, Tensor) else tau), 1.0
