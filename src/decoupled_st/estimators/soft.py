"""The relaxation with no discrete step: a reference, not an estimator."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import TEMPERATURE, Estimator, register
from decoupled_st.estimators.surrogate import Temperature


@exported("decoupled_st.categorical.soft")
def categorical(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[CategoricalOptions]") -> Tensor:
    """The relaxation with no discrete step, `softmax(l / tau)`: a reference, not an estimator.

    Args:
        logits: [..., K] with K along `dim`.
        tau: temperature, > 0.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        dim, mask, grad_scale: see `decoupled_st.categorical`.
    """
    return run(Call.categorical(logits, **options), tau)


@exported("decoupled_st.binary.soft")
def binary(logits: Tensor, *, tau: Temperature = 1.0, **options: "Unpack[BinaryOptions]") -> Tensor:
    """The relaxation with no discrete step, `sigmoid(l / tau)`: a reference, not an estimator.

    Args:
        logits: log-odds, any shape.
        tau: temperature, > 0.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        grad_scale: see `decoupled_st.binary`.
    """
    return run(Call.binary(logits, **options), tau)


def run(call: Call, tau: Temperature) -> Tensor:
    return call.run(define, call.tau("tau", tau))


def define(call: Call, tau: Temperature) -> Tensor:
    return call.result(call.relaxed(call.l, tau), tau)


@register
@dataclass(frozen=True, kw_only=True)
class Soft(Estimator):
    """The relaxation with no discrete step, as a reference; under `deterministic()` the argmax is taken."""

    name: ClassVar[str] = "soft"
    label: ClassVar[str] = "Soft (reference)"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "clean"
    discrete: ClassVar[bool] = False
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau
