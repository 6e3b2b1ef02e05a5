"""ReinMax, decoupled: a second-order estimator whose draw and gradient have temperatures of their own."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from decoupled_st import kernels
from decoupled_st.estimators.decoupled import Decoupled
from decoupled_st.estimators.exported import exported
from decoupled_st.estimators.operations import rows, surrogate
from decoupled_st.estimators.operations.noise import check_source, logistic, perturb
from decoupled_st.estimators.operations.straight_through import check_logits, emit, to_compute, wanted
from decoupled_st.estimators.operations.temperature import Temperature, check, check_float, check_scale, fixed_path
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register

WHY = "the estimator needs a distribution, not the argmax"


@exported("decoupled_st.categorical.reinmax")
def categorical(
    logits: Tensor,
    *,
    tau_f: Temperature = 1.0,
    tau_b: Temperature = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    r"""ReinMax, decoupled: second order where Decoupled ST is first order.

        forward     D ~ Categorical(p_f),                                    p_f = softmax(l / tau_f)
        backward    dL/dl = [2 J(m) - J(p_f) / 2] dL/dz / tau_f,             m = (D + p_b) / 2, p_b = softmax(l / tau_b)
                    with J(p) = diag(p) - p p'

    At tau_f = 1 it is ReinMax with its temperature tau_b; at tau_f = tau_b = 1 it is also ZGR. No temperature receives
    a gradient, and second derivatives are not defined.

    Args:
        logits: [..., K] with K along `dim`.
        tau_f: forward temperature, > 0: the estimator needs a distribution.
        tau_b: backward temperature, > 0.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Liu, Dong, Liu, Yu, Gao: Bridging discrete and backpropagation: straight-through and beyond, 2023. Shekhovtsov:
        Cold analysis of Rao-Blackwellized straight-through Gumbel-softmax gradient estimator, 2023.
    """
    dim = rows.check_categories(logits, dim, mask)
    tau_f = check("tau_f", tau_f, logits, dim, why=WHY)
    tau_b = check("tau_b", tau_b, logits, dim)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau_f, tau_b, mask, noise):
        from decoupled_st.kernels import reinmax

        if reinmax.can_run(logits.shape[dim]):
            return reinmax.choose_category(
                logits, tau_f, tau_b, scale, dim=dim, mask=mask, generator=generator, noise=noise
            )
    l = rows.allowed(logits, mask)
    row = rows.centred(l, dim)
    scores = perturb(row.l.detach(), tau_f, generator, noise).detach()
    known = row.empty is None and noise is None and not isinstance(tau_f, Tensor)  # a tensor may hold a NaN
    hard, _ = rows.one_hot(scores, dim, finite=known)
    if not wanted(logits):
        return hard.to(logits.dtype)
    filled = rows.filled(row.l, row.empty)
    p_f, p_b = (torch.softmax((filled / tau).detach(), dim) for tau in (tau_f, tau_b))
    m = (hard + p_b) / 2
    if surrogate.is_fixed(filled, tau_f, scale):
        others = (hard, m, p_f, row.largest, dim, tau_f, scale)
        z: Tensor = _Midpoint.apply(filled, others)  # type: ignore[no-untyped-call]
        return z.to(logits.dtype)
    path, gain = fixed_path(filled, tau_f, scale)
    path = 2 * _jacobian(m, path, dim) - 0.5 * _jacobian(p_f, path, dim)
    # Both Jacobians give 0 for equal gradients; relative to the largest category's they lose nothing to rounding.
    return emit(hard, path.scatter_add(dim, row.largest, -path.sum(dim, keepdim=True)), gain, logits.dtype)


@exported("decoupled_st.binary.reinmax")
def binary(
    logits: Tensor,
    *,
    tau_f: Temperature = 1.0,
    tau_b: Temperature = 1.0,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> Tensor:
    """ReinMax of two categories, decoupled.

        forward     P(D = 1) = p_f,                                                p_f = sigmoid(l / tau_f)
        backward    dL/dl = [2 m (1 - m) - p_f (1 - p_f) / 2] dL/dz / tau_f,       m = (D + sigmoid(l / tau_b)) / 2

    No temperature receives a gradient, and second derivatives are not defined.

    Args:
        logits: log-odds, any shape.
        tau_f: forward temperature, > 0: the estimator needs a distribution.
        tau_b: backward temperature, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    check_logits(logits)
    tau_f = check("tau_f", tau_f, logits, why=WHY)
    tau_b = check("tau_b", tau_b, logits)
    scale = check_scale(grad_scale, logits)
    check_source(logits, generator, noise)
    if kernels.can_run_fused(logits, scale, tau_f, tau_b, noise):
        from decoupled_st.kernels import reinmax

        if reinmax.can_run(1):
            return reinmax.choose_bit(logits, tau_f, tau_b, scale, generator=generator, noise=noise)
    l = to_compute(logits, logits)
    hard = rows.threshold(rows.perturbed(l.detach(), tau_f, logistic(l, generator, noise)).detach())
    if not wanted(logits):
        return hard.to(logits.dtype)
    # Of p and 1 - p the smaller, which rounding leaves alone; m and 1 - m by whether the likelier side was drawn.
    size = -l.detach().abs()
    rare_f, rare_b = torch.sigmoid(size / tau_f), torch.sigmoid(size / tau_b)
    likelier = hard == (l.detach() > 0)
    m = torch.where(likelier, (1 - rare_b / 2) * rare_b, (1 - rare_b * rare_b) / 2)
    slope = (m - rare_f * (1 - rare_f) / 2).detach()
    path, gain = fixed_path(l, tau_f, scale)
    return emit(hard, path * slope.masked_fill_(l.detach().isnan(), torch.nan), gain, logits.dtype)


class _Midpoint(torch.autograd.Function):
    """The value of `hard`, with ReinMax's gradient: one node, as in `surrogate`."""

    @staticmethod
    def forward(ctx: Any, l: Tensor, others: tuple[Any, ...]) -> Tensor:
        hard, m, p_f, largest, dim, tau, scale = others
        ctx.save_for_backward(m, p_f, largest, *([tau] if isinstance(tau, Tensor) else []))
        ctx.dim, ctx.tau, ctx.scale = dim, tau if isinstance(tau, float) else None, scale
        return hard

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        m, p_f, largest, *tau = ctx.saved_tensors
        h = (g - g.gather(ctx.dim, largest)) * ctx.scale
        result = 2 * _jacobian(m, h, ctx.dim) - 0.5 * _jacobian(p_f, h, ctx.dim)
        return result / (tau[0] if tau else ctx.tau), None


def _jacobian(p: Tensor, path: Tensor, dim: int) -> Tensor:
    """J(p) path; symmetric, so that this is its gradient too."""
    weighted = p * path
    return weighted - p * weighted.sum(dim, keepdim=True)


@register
@dataclass(frozen=True, kw_only=True)
class ReinMax(Estimator):
    """ReinMax, decoupled: sample from softmax(l/tau_f), second-order gradient with softmax(l/tau_b) in its midpoint."""

    name: ClassVar[str] = "reinmax"
    label: ClassVar[str] = "ReinMax"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = "tau_f"
    surrogate: ClassVar[str] = "second order"
    backward: ClassVar = "tau_b"
    tau_f: float = field(default=1.0, metadata={**TEMPERATURE, "check": partial(check_float, why=WHY)})
    tau_b: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau_f

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau_b)
