"""Clipped identity: the gradient passes where the logit is small, and for categories where sparsemax is above 0."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import FORWARD, TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature, emit, temper


@exported("decoupled_st.categorical.clipped_ste")
def categorical(
    logits: Tensor, *, tau_f: Temperature = 0.0, tau_b: Temperature = 1.0, **options: "Unpack[CategoricalOptions]"
) -> Tensor:
    """The gradient of sparsemax: the clipped identity of binary networks, for categories.

        forward     z ~ Categorical(softmax(l / tau_f)),           tau_f = 0: the argmax
        backward    dL/dl = (g - mean of g over S) on S, 0 elsewhere, over tau_b
                    S = the categories where sparsemax(l / tau_b) is above 0

    For two categories S is both where they are less than tau_b apart: the binary form. A category far behind the
    largest gets exactly no gradient.

    Args:
        logits: [..., K] with K along `dim`.
        tau_f: forward temperature, >= 0.
        tau_b: temperature of sparsemax, > 0.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Martins, Astudillo: From softmax to sparsemax, 2016.
    """
    return run(Call.categorical(logits, **options), tau_f, tau_b)


@exported("decoupled_st.binary.clipped_ste")
def binary(
    logits: Tensor, *, tau_f: Temperature = 0.0, tau_b: Temperature = 1.0, **options: "Unpack[BinaryOptions]"
) -> Tensor:
    """The clipped identity of binary networks, which is the derivative of a hard sigmoid, or hard tanh.

        forward     P(z = 1) = sigmoid(l / tau_f),                    tau_f = 0: z = 1 where l > 0
        backward    dL/dl = dL/dz / (2 tau_b) where |l| <= tau_b, 0 elsewhere

    `2 z - 1` (`nn.Sign`) at tau_b = 1 is the sign of BinaryNet, Larq's `ste_sign`, with the gradient passed on where
    |l| <= 1.

    Args:
        logits: log-odds, any shape.
        tau_f: forward temperature, >= 0.
        tau_b: half the width of the window, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.

    Reference:
        Hubara, Courbariaux, Soudry, El-Yaniv, Bengio: Binarized neural networks, 2016.
    """
    return run(Call.binary(logits, **options), tau_f, tau_b)


def run(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    return call.run(define, call.tau("tau_f", tau_f, zero=True), call.tau("tau_b", tau_b))


def define(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    hard = call.draw(tau_f)
    if not call.trained:
        return hard.to(call.logits.dtype)
    t, gain = temper(call.tracked(), tau_b, call.scale)
    fixed = t.detach()
    moved = t - fixed  # zero, with the derivative of t; NaN where t is infinite, and then outside
    if call.dim is None:
        path = moved.masked_fill(fixed.abs() > 1, 0.0) / 2
    else:
        outside = _outside(fixed, call.dim)
        # A row with a NaN has NaN for its count, and so for its gradient.
        count = (~outside).sum(call.dim, keepdim=True) + 0 * fixed.amax(call.dim, keepdim=True)
        mean = moved.masked_fill(outside, 0.0).sum(call.dim, keepdim=True) / count
        path = (moved - mean).masked_fill(outside, 0.0)
    return emit(hard, path, gain, call.logits.dtype)


def _outside(t: Tensor, dim: int) -> Tensor:
    """True where sparsemax(t) is 0. With t sorted, the first j are inside as long as 1 + j t_j is above their sum."""
    ordered = t.topk(t.shape[dim], dim).values  # of DTensors whole, where a cumsum of shards is wrong
    total = ordered.masked_fill(ordered == -torch.inf, 0.0).cumsum(dim)
    j = torch.ones_like(ordered).cumsum(dim)
    inside = 1 + j * ordered > total
    count = inside.sum(dim, keepdim=True).clamp(min=1)
    return t * count <= total.gather(dim, count - 1) - 1


@register
@dataclass(frozen=True, kw_only=True)
class ClippedSTE(Estimator):
    """Clipped identity, or hard tanh, of binary networks; for categories, the gradient of sparsemax."""

    name: ClassVar[str] = "clipped_ste"
    label: ClassVar[str] = "Clipped identity"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "clipped"
    tau_f: float = field(default=0.0, metadata=FORWARD)
    tau_b: float = field(default=1.0, metadata=TEMPERATURE)

    def deterministic(self) -> "ClippedSTE":
        return ClippedSTE(tau_b=self.tau_b)
