"""ReinMax, decoupled: a second-order estimator with one temperature for the draw and one for the gradient."""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators import surrogate
from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.contract import check_float
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature

WHY = "the estimator needs a distribution, not the argmax"


@exported("decoupled_st.categorical.reinmax")
def categorical(
    logits: Tensor, *, tau_f: Temperature = 1.0, tau_b: Temperature = 1.0, **options: "Unpack[CategoricalOptions]"
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
    return run(Call.categorical(logits, **options), tau_f, tau_b)


@exported("decoupled_st.binary.reinmax")
def binary(
    logits: Tensor, *, tau_f: Temperature = 1.0, tau_b: Temperature = 1.0, **options: "Unpack[BinaryOptions]"
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
    return run(Call.binary(logits, **options), tau_f, tau_b)


def run(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    tau_f, tau_b = call.tau("tau_f", tau_f, why=WHY), call.tau("tau_b", tau_b)
    return call.run(define, tau_f, tau_b, fused="second order")


def define(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    hard = call.draw(tau_f)
    if not call.trained:
        return hard.to(call.logits.dtype)
    l, dim, largest = call.filled(call.l), call.dim, call.largest
    if dim is None or largest is None:
        path, gain = _fixed_path(call, tau_f)
        return surrogate.emit(hard, path * _slope(l, hard, tau_f, tau_b), gain, call.logits.dtype)
    p_f, p_b = (torch.softmax((l / tau).detach(), dim) for tau in (tau_f, tau_b))
    m = (hard + p_b) / 2
    if call.has_node(tau_f):
        return call.send(hard, largest, tau_f, (m, p_f), weights=(2.0, -0.5))
    path, gain = _fixed_path(call, tau_f)
    path = 2 * surrogate.jacobian(m, path, dim) - 0.5 * surrogate.jacobian(p_f, path, dim)
    return surrogate.emit(hard, surrogate.relative(path, largest, dim), gain, call.logits.dtype)


def _fixed_path(call: Call, tau: Temperature) -> tuple[Tensor, float]:
    """Zeros with the derivative of `l / tau`, and the part of `grad_scale` that is left for the output: for a gradient
    that is a fixed linear map of the one coming in."""
    path = call.moved()
    if isinstance(tau, float) and isinstance(call.scale, float):
        return path / tau, call.scale
    return path * call.scale / (tau.detach() if isinstance(tau, Tensor) else tau), 1.0


def _slope(l: Tensor, hard: Tensor, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    """2 m (1 - m) - p_f (1 - p_f) / 2 of log-odds."""
    # The smaller of p and 1 - p, which rounding leaves alone; m and 1 - m by whether the likelier side was drawn.
    rare_f, rare_b = torch.sigmoid(-l.abs() / tau_f), torch.sigmoid(-l.abs() / tau_b)
    likelier = hard == (l > 0)
    m = torch.where(likelier, (1 - rare_b / 2) * rare_b, (1 - rare_b * rare_b) / 2)
    return (m - rare_f * (1 - rare_f) / 2).detach().masked_fill_(l.isnan(), torch.nan)


@register
@dataclass(frozen=True, kw_only=True)
class ReinMax(Estimator):
    """ReinMax, decoupled: sample from softmax(l/tau_f), second-order gradient with softmax(l/tau_b) in its midpoint."""

    name: ClassVar[str] = "reinmax"
    label: ClassVar[str] = "ReinMax"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "second order"
    tau_f: float = field(default=1.0, metadata={**TEMPERATURE, "check": partial(check_float, why=WHY)})
    tau_b: float = field(default=1.0, metadata=TEMPERATURE)
