"""Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.gumbel_ste")
def categorical(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[CategoricalOptions]") -> Tensor:
    """Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits.

        forward     z = onehot(argmax(l + g)),              g ~ Gumbel(0, 1): a sample of softmax(l), whatever tau
        backward    dL/dl = (diag(p) - p p') dL/dz / tau,   p = softmax((l + g) / tau)

    The value and gradient of `torch.nn.functional.gumbel_softmax(logits, tau, hard=True)` for the same noise.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature of the surrogate, > 0.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Jang, Gu, Poole: Categorical reparameterization with Gumbel-Softmax, 2017. Maddison, Mnih, Teh: The concrete
        distribution, 2017.
    """
    return run(Call.categorical(logits, **options), tau)


@exported("decoupled_st.binary.gumbel_ste")
def binary(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[BinaryOptions]") -> Tensor:
    """Straight-Through Gumbel-Softmax of two categories (binary concrete): gradient at the perturbed log-odds.

        forward     z = 1 where l + u > 0,               u ~ Logistic(0, 1): P(z = 1) = sigmoid(l), whatever tau
        backward    dL/dl = p (1 - p) dL/dz / tau,       p = sigmoid((l + u) / tau)

    Args:
        logits: log-odds, any shape.
        tau: temperature of the surrogate, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    return run(Call.binary(logits, **options), tau)


def run(call: Call, tau: Temperature) -> Tensor:
    return call.run(define, 1.0, call.tau("tau", tau), fused="perturbed")


def define(call: Call, tau_f: float, tau: Temperature) -> Tensor:
    scores = call.scores(1.0)
    hard, largest = call.choose(scores)
    return call.result(hard, tau, scores, largest)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelSTE(Estimator):
    """Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits."""

    name: ClassVar[str] = "gumbel_ste"
    label: ClassVar[str] = "ST Gumbel-Softmax"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    draw: ClassVar = 1.0
    surrogate: ClassVar[str] = "perturbed"
    tau: float = field(default=1.0, metadata=TEMPERATURE)
