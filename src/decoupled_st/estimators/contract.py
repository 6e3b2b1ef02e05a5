"""The checks of what users pass: logits, masks, temperatures, numbers; and the dtype that is computed in."""

import math
import operator

import torch
from torch import Tensor

from decoupled_st.estimators.surrogate import Temperature

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LARGEST_NOISE = 1e3
"""No noise of any dtype is larger: Gumbel noise from float64 ends below 750."""


def check_logits(logits: Tensor) -> None:
    """Refuse what is no floating-point tensor."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}")
    if logits.dtype not in _DTYPES:
        wide = " (float16, bfloat16, float32 or float64)" if logits.is_floating_point() else ""
        raise TypeError(f"logits must be a floating-point tensor{wide}, got {logits.dtype}")
    if logits.layout is not torch.strided:
        raise TypeError(f"logits must be a dense tensor, got layout {logits.layout}")
    if logits.is_nested:
        raise TypeError(
            "logits must be a dense tensor, got a nested one: torch.nested.to_padded_tensor makes it padded"
        )


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
    _check_tensor("mask", mask, logits)


def to_compute(value: Tensor, logits: Tensor) -> Tensor:
    """A tensor in the dtype to compute in: the logits' own, but at least float32."""
    dtype = logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32
    return value if value.dtype == dtype else value.to(dtype)


def check(
    name: str, tau: Temperature, logits: Tensor, dim: int | None = None, *, zero: bool = False, why: str = ""
) -> Temperature:
    """A temperature for `logits`: a checked float, or a tensor whose shape (not its values) is checked.

    `dim`, counted from the end, is where the categories lie; a tensor must have size 1 there.

    Values inside a tensor are not looked at: that would wait for the device at every call.
    """
    if isinstance(tau, Tensor):
        _check_tensor(name, tau, logits)
        if dim is not None and tau.dim() >= -dim and tau.shape[dim] != 1:
            raise ValueError(
                f"{name} must have size 1 along dim {dim}, where the categories lie: "
                f"{name} has shape {tuple(tau.shape)}, logits {tuple(logits.shape)}"
            )
        return to_compute(tau, logits)
    _check_number(name, tau)
    value, dtype = check_float(name, tau, zero=zero, why=why), torch.promote_types(logits.dtype, torch.float32)
    # Outside these it would become infinite, itself or times noise, or 0 where that is none.
    most, least = torch.finfo(dtype).max / _LARGEST_NOISE, torch.finfo(dtype).tiny
    if value > most or (value < least and not zero):
        bound = f"at most {most:.2g}" + ("" if zero else f" and at least {least:.2g}")
        raise ValueError(f"{name} must be {bound} in {dtype}, got {name}={value}")
    return value


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


def _check_tensor(name: str, value: Tensor, logits: Tensor) -> None:
    """Refuse a tensor that is complex, or that does not broadcast to the logits without enlarging them."""
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")
    ours, theirs = tuple(value.shape), tuple(logits.shape)
    pairs = zip(ours[::-1], theirs[::-1])  # noqa: B905, since torch 2.6 cannot trace strict=False
    if len(ours) > len(theirs) or any(a not in (1, b) for a, b in pairs):
        raise ValueError(f"{name} must broadcast to the logits: {name} has shape {ours}, logits {theirs}")


def check_scale(grad_scale: float | Tensor, logits: Tensor) -> float | Tensor:
    """`grad_scale` as a float that is finite in the dtype of computation, or a detached tensor that broadcasts to the
    logits."""
    if type(grad_scale) is float and 1e-30 < abs(grad_scale) < 1e30:
        return grad_scale
    if isinstance(grad_scale, Tensor):
        _check_tensor("grad_scale", grad_scale, logits)
        return to_compute(grad_scale.detach(), logits)
    _check_number("grad_scale", grad_scale)
    scale, dtype = float(grad_scale), torch.promote_types(logits.dtype, torch.float32)
    if not abs(scale) <= torch.finfo(dtype).max:
        raise ValueError(f"grad_scale must be finite in {dtype}, got grad_scale={scale}")
    return scale


def _check_number(name: str, value: object) -> None:
    """Refuse what is neither tensor nor number, where either would do."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a number or a torch tensor that broadcasts to the logits, got {type(value).__name__}"
        )


def check_generator(generator: object) -> None:
    """Refuse what is no source of draws."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {type(generator).__name__}: "
            "torch.Generator(device).manual_seed(seed) makes one"
        )


def is_number(value: object) -> bool:
    """True where `value` is a float, or turns into one as NumPy's scalars do; arrays, which have dimensions, do not."""
    if isinstance(value, (float, int)):
        return True
    other = isinstance(value, (Tensor, complex)) or getattr(value, "ndim", 0) > 0
    return hasattr(value, "__float__") and not other


def check_count(name: str, value: object, least: int = 1) -> int:
    """A whole number that is not too small."""
    count = whole_number(value)
    if count is None or count < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return count


def whole_number(value: object) -> int | None:
    """A whole number, NumPy's too, as an int; None where it is none, as 2.0 and True are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
