"""Checks of x, codes, mask, temperatures, index and seed, which then have one shape.

Values are looked at on a CPU alone: on a GPU that would wait for the device at every call, and there an error upstream
shows as NaN. Nor are they while torch traces or transforms the call: `vmap` has many values in one.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from decoupled_st.codebook.scores import METRICS
from decoupled_st.estimators.contract import check, check_generator, check_scale
from decoupled_st.kernels import traced


@dataclass
class Inputs:
    """x [N, H, D], codes [H, K, D] and mask [H, K], whatever shape they came in."""

    x: Tensor
    codes: Tensor
    mask: Tensor | None
    metric: str
    lead: tuple[int, ...]
    """x's shape without D; the last of it is H where codes have heads."""

    def temperature(self, name: str, tau: float | Tensor, *, zero: bool = False) -> Tensor:
        """A temperature as [N, H]."""
        return self._by_row(name, tau if isinstance(tau, Tensor) else check(name, tau, self.x, zero=zero))

    def scale(self, grad_scale: float | Tensor) -> Tensor:
        """`grad_scale` as [N, H]."""
        if isinstance(grad_scale, Tensor):
            return self._by_row("grad_scale", grad_scale.detach())
        return self._by_row("grad_scale", check_scale(grad_scale, self.x))

    def _by_row(self, name: str, value: float | Tensor) -> Tensor:
        dtype = torch.promote_types(self.x.dtype, torch.float32)
        rows, expected = self.x.shape[:2], (*self.lead, 1)
        if not isinstance(value, Tensor):
            # A product, since torch.compile would compile again for every new float that fills a tensor.
            return (torch.ones(1, 1, dtype=dtype, device=self.x.device) * value).expand(rows)
        ours = (1,) * (len(expected) - value.dim()) + tuple(value.shape)
        if len(ours) != len(expected) or any(a not in (1, b) for a, b in zip(ours, expected)):  # noqa: B905
            raise ValueError(
                f"{name} must be one number per row of x, with size 1 where x has its features: "
                f"{name} has shape {tuple(value.shape)}, expected one that broadcasts to {expected}"
            )
        return value.to(self.x.device, dtype).reshape(ours).expand(expected).reshape(rows)


def prepare(x: Tensor, codes: Tensor, metric: str, mask: Tensor | None) -> Inputs:
    """The inputs in one shape and dtype; refuses those that do not fit together."""
    if not torch.compiler.is_compiling():
        refuse_transforms()
    check_floating("x", x)
    check_floating("codes", codes)
    _check_shapes(x, codes)
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if x.device != codes.device:
        raise ValueError(f"x and codes must be on one device, got {x.device} and {codes.device}")
    dtype = torch.promote_types(x.dtype, codes.dtype)
    if mask is not None:
        mask = _check_mask(mask, codes)
    if codes.device.type == "cpu" and not traced():
        _check_values(codes, mask)
    lead, heads = tuple(x.shape[:-1]), codes.dim() == 3
    if not heads:
        codes, mask = codes.unsqueeze(0), None if mask is None else mask.unsqueeze(0)
    rows = math.prod(lead[:-1] if heads else lead)  # spelled out: of an empty batch torch could not infer it
    flat = x.to(dtype).reshape(rows, codes.shape[0], x.shape[-1])
    return Inputs(flat, codes.to(dtype), mask, metric, lead)


def check_floating(name: str, value: object) -> None:
    """Refuse what is no floating-point tensor."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {getattr(value, 'dtype', type(value).__name__)}")


def check_per_code(name: str, value: object, codes: Tensor, *, features: bool) -> None:
    """Refuse what is not one row per code, or without `features` one number."""
    check_floating(name, value)
    assert isinstance(value, Tensor)
    rows = codes.shape[:-1]
    fits = value.shape[:-1] == rows and value.shape[-1] > 0 if features else value.shape == rows
    if not fits:
        expected = ", ".join(map(str, (*rows, "V") if features else rows))
        raise ValueError(f"{name} must be [{expected}], a row per code, got shape {tuple(value.shape)}")


def seed_of(seed: int | Tensor | None, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """The seed of a call, int64 [1] on the device: the caller's, or drawn from torch's generator or the given one."""
    check_seed(seed, generator)
    if isinstance(seed, Tensor):
        return seed.reshape(1).to(device)
    if seed is not None:
        return torch.full((1,), seed, dtype=torch.int64, device=device)
    if generator is None:
        return torch.randint(1 << 62, (1,), device=device)
    # torch.compile cannot trace a generator: it runs this eagerly, or with fullgraph=True quotes the line in its error.
    return torch.randint(1 << 62, (1,), device=device, generator=generator)  # pass a tensor as seed= instead


def check_seed(seed: int | Tensor | None, generator: torch.Generator | None) -> None:
    """Refuse an invalid seed, an invalid generator, and both together."""
    if generator is not None:
        check_generator(generator)
    if seed is None:
        return
    if generator is not None:
        raise ValueError("pass seed or generator, not both: given a seed, nothing is drawn from a generator")
    if isinstance(seed, Tensor):
        if seed.dtype != torch.int64 or seed.numel() != 1:
            raise TypeError(f"seed must be one int64, got shape {tuple(seed.shape)} of {seed.dtype}")
    # torch.compile, which makes a symbol of a number that changes from call to call, can ask for its type alone.
    elif isinstance(seed, bool) or not (isinstance(seed, int) or hasattr(seed, "__index__")) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, or an int64 tensor of one, got {seed!r}")


def check_index(index: object, codes: int) -> None:
    """Refuse an index of another kind, or out of range (looked at on a CPU alone)."""
    if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"index must be an integer tensor, got {getattr(index, 'dtype', type(index).__name__)}")
    if index.device.type != "cpu" or traced() or index.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(index))
    if low < 0 or high >= codes:
        raise ValueError(f"index must lie in [0, {codes}), got values from {low} to {high}")


def refuse_transforms() -> None:
    """Refuse what would get no gradient, or a raw error, from an operator with a backward alone."""
    functorch = torch._C._functorch
    kinds = functorch.TransformType.Grad, functorch.TransformType.Jvp
    levels = functorch.get_interpreter_stack() or ()
    if forward_ad._current_level >= 0 or any(level.key() in kinds for level in levels):
        raise NotImplementedError(
            "codebooks do not follow forward-mode differentiation, nor torch.func.grad and its kin: "
            "take the gradient by backward() or torch.autograd.grad"
        )


def _check_shapes(x: Tensor, codes: Tensor) -> None:
    if codes.dim() not in (2, 3):
        raise ValueError(f"codes must be [K, D], or [H, K, D] for H heads, got shape {tuple(codes.shape)}")
    K, D = codes.shape[-2:]
    if K < 2 or D < 1:
        raise ValueError(f"there must be at least 2 codes to choose from, of at least 1 feature, got {K} of {D}")
    if K >= 2**31:
        raise ValueError(f"there may be at most 2^31 - 1 codes, got {K}: split them into heads or residual stages")
    if x.dim() < codes.dim() - 1 or x.shape[-1] != D:
        raise ValueError(
            f"x must end in the codes' {D} features: x has shape {tuple(x.shape)}, codes {tuple(codes.shape)}"
        )
    if codes.dim() == 3 and x.shape[-2] != codes.shape[0]:
        raise ValueError(
            f"x must be [..., H, D] with the codes' H = {codes.shape[0]} heads: "
            f"x has shape {tuple(x.shape)}, codes {tuple(codes.shape)}"
        )


def _check_mask(mask: Tensor, codes: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(f"mask must be a bool tensor (True = allowed), got {kind}")
    shape = tuple(codes.shape[:-1])
    if tuple(mask.shape) not in (shape, shape[-1:]):
        raise ValueError(f"mask must have one value per code, shape {shape}, got {tuple(mask.shape)}")
    return mask.expand(shape)


def _check_values(codes: Tensor, mask: Tensor | None) -> None:
    low, high = torch.aminmax(codes.detach())
    if not (low > -math.inf and high < math.inf):
        bad = (~codes.detach().isfinite()).any(-1)
        at = "row " + ", ".join(str(i) for i in bad.nonzero()[0].tolist())
        raise ValueError(f"codes must be finite: {int(bad.sum())} have a NaN or an infinity, the first in {at}")
    if mask is not None and not mask.any(-1).all():
        raise ValueError("mask must allow at least one code (of each head), got one that allows none")
