"""Decoupled ST: the sample at one temperature, the gradient at another."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import FORWARD, TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.decoupled")
def categorical(
    logits: Tensor, *, tau_f: Temperature, tau_b: Temperature, **options: "Unpack[CategoricalOptions]"
) -> Tensor:
    r"""Decoupled ST: the sample at one temperature, the gradient at another.

        forward     z ~ Categorical(softmax(l / tau_f))           tau_f = 0: the argmax
        backward    dL/dl = (diag(p_b) - p_b p_b') dL/dz / tau_b,    p_b = softmax(l / tau_b)

    Args:
        logits: [..., K] with K along `dim`.
        tau_f: forward temperature, >= 0; inside a tensor 0 is the argmax, elementwise.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Returns:
        One-hot tensor of the logits' shape and dtype.

    Example:
        >>> import torch
        >>> from decoupled_st.categorical import decoupled
        >>> logits = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
        >>> z = decoupled(logits, tau_f=0.0, tau_b=0.5)
        >>> z.tolist()
        [[0.0, 0.0, 1.0]]
        >>> (z * torch.tensor([1.0, 0.0, 0.0])).sum().backward()
        >>> p = torch.softmax(logits.detach() / 0.5, -1)
        >>> torch.allclose(logits.grad, (torch.tensor([1.0, 0, 0]) - p[..., :1]) * p / 0.5)
        True

    Reference:
        Shah, Yan, Mozer, Liu: Improving Discrete Optimisation Via Decoupled Straight-Through Estimator, 2026.
    """
    return at_temperatures(Call.categorical(logits, **options), tau_f, tau_b)


@exported("decoupled_st.binary.decoupled")
def binary(logits: Tensor, *, tau_f: Temperature, tau_b: Temperature, **options: "Unpack[BinaryOptions]") -> Tensor:
    """Decoupled ST: the sample at one temperature, the gradient at another.

        forward     P(z = 1) = sigmoid(l / tau_f)           tau_f = 0: z = 1 where l > 0
        backward    dL/dl = p_b (1 - p_b) dL/dz / tau_b,    p_b = sigmoid(l / tau_b)

    Args:
        logits: log-odds, any shape.
        tau_f: forward temperature, >= 0; inside a tensor 0 is the threshold, elementwise.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        generator, noise, grad_scale: see `decoupled_st.binary`.

    Example:
        >>> import torch
        >>> from decoupled_st.binary import decoupled
        >>> logits = torch.tensor([-1.0, 2.0], requires_grad=True)
        >>> z = decoupled(logits, tau_f=0.0, tau_b=0.5)
        >>> z.sum().backward()
        >>> p = torch.sigmoid(logits.detach() / 0.5)
        >>> z.tolist(), torch.allclose(logits.grad, p * (1 - p) / 0.5)
        ([0.0, 1.0], True)
    """
    return at_temperatures(Call.binary(logits, **options), tau_f, tau_b)


def at_temperatures(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    """The choice at `tau_f` with the surrogate's gradient at `tau_b`, checked."""
    tau_f, tau_b = call.tau("tau_f", tau_f, zero=True), call.tau("tau_b", tau_b)
    return call.run(define, tau_f, tau_b, fused="clean")


def define(call: Call, tau_f: Temperature, tau_b: Temperature) -> Tensor:
    return call.result(call.draw(tau_f), tau_b)


@register
@dataclass(frozen=True, kw_only=True)
class Decoupled(Estimator):
    """Decoupled ST: sample from softmax(l/tau_f), gradient through the Jacobian of softmax(l/tau_b)."""

    name: ClassVar[str] = "decoupled"
    label: ClassVar[str] = "Decoupled ST"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "clean"
    tau_f: float = field(metadata=FORWARD)
    tau_b: float = field(metadata=TEMPERATURE)
