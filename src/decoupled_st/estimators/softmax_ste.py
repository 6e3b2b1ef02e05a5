"""Softmax STE: sample and gradient at one temperature."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators import decoupled
from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.softmax_ste")
def categorical(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[CategoricalOptions]") -> Tensor:
    """Softmax STE: sample and gradient at one temperature, `decoupled` on its diagonal.

        forward     z ~ Categorical(p),                     p = softmax(l / tau)
        backward    dL/dl = (diag(p) - p p') dL/dz / tau

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Hinton: Neural networks for machine learning, lecture 15d, 2012.
    """
    return run(Call.categorical(logits, **options), tau)


@exported("decoupled_st.binary.softmax_ste")
def binary(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[BinaryOptions]") -> Tensor:
    """Softmax STE (for two categories, the sigmoid STE): sample and gradient at one temperature.

        forward     P(z = 1) = p,                        p = sigmoid(l / tau)
        backward    dL/dl = p (1 - p) dL/dz / tau

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    return run(Call.binary(logits, **options), tau)


def run(call: Call, tau: Temperature) -> Tensor:
    tau = call.tau("tau", tau)
    return call.run(decoupled.define, tau, tau, fused="clean")


@register
@dataclass(frozen=True, kw_only=True)
class SoftmaxSTE(Estimator):
    """Softmax STE: sample and gradient at one temperature."""

    name: ClassVar[str] = "softmax_ste"
    label: ClassVar[str] = "Softmax STE"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "clean"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
