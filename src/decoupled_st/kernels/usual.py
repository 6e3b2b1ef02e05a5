"""The kernels for the usual call (`estimators.operations.direct`), which has seen all that they need to know:
contiguous logits, two temperatures, each a float or one number on the device, and nothing else."""

import torch
from torch import Tensor

from decoupled_st.kernels import binary, categorical, host
from decoupled_st.kernels.noise import draw_seed


def choose_category(logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, perturbed: bool) -> Tensor:
    """The same as `categorical.choose`."""
    z = host.choose(logits, tau_f, tau_b, True, perturbed)
    if z is not None:
        return z
    others = (_seed(logits, tau_f), None, None, *_number(tau_f), *_number(tau_b), None, 1.0, False, perturbed)
    if logits.requires_grad and torch.is_grad_enabled():
        z = categorical._apply(logits, others)
        host.prepare(logits, tau_f, tau_b, True, perturbed)
        return z
    return categorical._run_forward(logits, *others)


def choose_bit(logits: Tensor, tau_f: float | Tensor, tau_b: float | Tensor, perturbed: bool) -> Tensor:
    """The same as `binary.choose`."""
    z = host.choose(logits, tau_f, tau_b, False, perturbed)
    if z is not None:
        return z
    others = (_seed(logits, tau_f), None, *_number(tau_f), *_number(tau_b), None, 1.0, False, perturbed)
    if logits.requires_grad and torch.is_grad_enabled():
        z = binary._apply(logits, others)
        host.prepare(logits, tau_f, tau_b, False, perturbed)
        return z
    return binary._run_forward(logits, *others)


def _seed(logits: Tensor, tau_f: float | Tensor) -> Tensor | None:
    """Nothing is drawn at 0; a number on the device is not looked at."""
    return None if type(tau_f) is float and tau_f == 0 else draw_seed(logits.device, None)


def _number(tau: float | Tensor) -> tuple[Tensor | None, float]:
    """The same as `rows.number`."""
    return (None, tau) if type(tau) is float else (tau.reshape(1), 0.0)  # type: ignore[union-attr]
