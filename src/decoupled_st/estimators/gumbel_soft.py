"""The relaxed Gumbel-Softmax: random, and no discrete step."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.gumbel_soft")
def categorical(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[CategoricalOptions]") -> Tensor:
    """The relaxed Gumbel-Softmax (concrete) sample: random, and no discrete step.

        forward     z = softmax((l + g) / tau),             g ~ Gumbel(0, 1): its argmax is a sample of softmax(l)
        backward    the derivative of that

    The value and gradient of `torch.nn.functional.gumbel_softmax(logits, tau, hard=False)` for the same noise.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0. A tensor that requires grad receives its gradient.
        dim, mask, generator, noise, grad_scale: see `decoupled_st.categorical`.

    Reference:
        Jang, Gu, Poole: Categorical reparameterization with Gumbel-Softmax, 2017. Maddison, Mnih, Teh: The concrete
        distribution, 2017.
    """
    return run(Call.categorical(logits, **options), tau)


@exported("decoupled_st.binary.gumbel_soft")
def binary(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[BinaryOptions]") -> Tensor:
    """The relaxed Gumbel-Softmax of two categories (binary concrete): random, and no discrete step.

        forward     z = sigmoid((l + u) / tau),          u ~ Logistic(0, 1): z > 1/2 with probability sigmoid(l)
        backward    the derivative of that

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise, grad_scale: see `decoupled_st.binary`.
    """
    return run(Call.binary(logits, **options), tau)


def run(call: Call, tau: Temperature) -> Tensor:
    return call.run(define, call.tau("tau", tau))


def define(call: Call, tau: Temperature) -> Tensor:
    scores = call.scores(1.0)
    largest = None if call.dim is None else scores.argmax(call.dim, keepdim=True)
    return call.result(call.relaxed(scores, tau), tau, scores, largest)


@register
@dataclass(frozen=True, kw_only=True)
class GumbelSoft(Estimator):
    """The relaxed Gumbel-Softmax, random and with no discrete step; under `deterministic()` the argmax is taken."""

    name: ClassVar[str] = "gumbel_soft"
    label: ClassVar[str] = "Gumbel-Softmax (relaxed)"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "perturbed"
    discrete: ClassVar[bool] = False
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return 1.0
