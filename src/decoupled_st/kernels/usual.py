"""The kernels for the usual call (`estimators.operations.direct`), which has seen all that they need to know:
contiguous logits, two floats, and nothing else."""

import torch
from torch import Tensor

from decoupled_st.kernels import binary, categorical
from decoupled_st.kernels.noise import draw_seed


def choose_category(logits: Tensor, tau_f: float, tau_b: float, perturbed: bool) -> Tensor:
    """As `categorical.choose`."""
    seed = None if tau_f == 0 else draw_seed(logits.device, None)
    others = (seed, None, None, None, tau_f, None, tau_b, None, 1.0, False, perturbed)
    if logits.requires_grad and torch.is_grad_enabled():
        return categorical._apply(logits, others)
    return categorical._run_forward(logits, *others)


def choose_bit(logits: Tensor, tau_f: float, tau_b: float, perturbed: bool) -> Tensor:
    """As `binary.choose`."""
    seed = None if tau_f == 0 else draw_seed(logits.device, None)
    others = (seed, None, None, tau_f, None, tau_b, None, 1.0, False, perturbed)
    if logits.requires_grad and torch.is_grad_enabled():
        return binary._apply(logits, others)
    return binary._run_forward(logits, *others)
