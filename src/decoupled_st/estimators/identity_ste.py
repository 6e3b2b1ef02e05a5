"""Identity STE: the argmax forward, the gradient unchanged."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows
from decoupled_st.estimators.operations.noise import check_source
from decoupled_st.estimators.operations.straight_through import check_logits, emit, to_compute, wanted
from decoupled_st.estimators.operations.temperature import check_scale, temper
from decoupled_st.estimators.spec import Estimator, register


@exported("decoupled_st.categorical.identity_ste")
def categorical(
    logits: Tensor,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Identity STE: the argmax forward, the gradient unchanged.

        forward     z = onehot(argmax(l))
        backward    dL/dl = dL/dz

    Args:
        logits: [..., K] with K along `dim`.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        dim, mask, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Bengio, Leonard, Courville: Estimating or propagating gradients through stochastic neurons, 2013.
    """
    dim = rows.check_categories(logits, dim, mask)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, mask):
        from decoupled_st.kernels.categorical import choose

        return choose(logits, 0.0, None, scale, dim=dim, mask=mask, generator=None, noise=None)
    l = rows.allowed(logits, mask)
    hard, _ = rows.one_hot(l.detach(), dim)
    if not wanted(logits):
        return hard.to(logits.dtype)
    finite, gain = temper(l.masked_fill(l.isinf(), 0.0), 1.0, scale)
    return emit(hard, finite, gain, logits.dtype)


@exported("decoupled_st.binary.identity_ste")
def binary(
    logits: Tensor,
    *,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """Identity STE: the threshold forward, the gradient unchanged.

        forward     z = 1 where l > 0
        backward    dL/dl = dL/dz

    Args:
        logits: log-odds, any shape.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale):
        from decoupled_st.kernels.binary import choose

        return choose(logits, 0.0, None, scale, generator=None, noise=None)
    l = to_compute(logits, logits)
    hard = rows.threshold(l.detach())
    if not wanted(logits):
        return hard.to(logits.dtype)
    finite, gain = temper(l.masked_fill(l.isinf(), 0.0), 1.0, scale)
    return emit(hard, finite, gain, logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class IdentitySTE(Estimator):
    """Identity STE: the argmax forward, the gradient unchanged."""

    name: ClassVar[str] = "identity_ste"
    label: ClassVar[str] = "Identity STE"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 0.0
    surrogate: ClassVar[str] = "identity"
    backward: ClassVar = None

    @property
    def sample_temperature(self) -> float:
        return 0.0

    def deterministic(self) -> "IdentitySTE":
        return self
