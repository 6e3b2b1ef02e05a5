"""Identity STE: the argmax forward, the gradient unchanged."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from decoupled_st.estimators.call import BinaryOptions, Call, CategoricalOptions, Unpack, exported
from decoupled_st.estimators.spec import Estimator, register
from decoupled_st.estimators.surrogate import emit, temper


@exported("decoupled_st.categorical.identity_ste")
def categorical(logits: Tensor, **options: "Unpack[CategoricalOptions]") -> Tensor:
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
    return Call.categorical(logits, **options).run(define)


@exported("decoupled_st.binary.identity_ste")
def binary(logits: Tensor, **options: "Unpack[BinaryOptions]") -> Tensor:
    """Identity STE: the threshold forward, the gradient unchanged.

        forward     z = 1 where l > 0
        backward    dL/dl = dL/dz

    Args:
        logits: log-odds, any shape.
        generator, noise: accepted as everywhere and not used: nothing is drawn.
        grad_scale: see `decoupled_st.binary`.
    """
    return Call.binary(logits, **options).run(define)


def define(call: Call) -> Tensor:
    hard, _ = call.choose(call.source.detach(), known=False)
    if not call.trained:
        return hard.to(call.logits.dtype)
    finite, gain = temper(call.source.masked_fill(call.source.isinf(), 0.0), 1.0, call.scale)
    return emit(hard, finite, gain, call.logits.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class IdentitySTE(Estimator):
    """Identity STE: the argmax forward, the gradient unchanged."""

    name: ClassVar[str] = "identity_ste"
    label: ClassVar[str] = "Identity STE"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    surrogate: ClassVar[str] = "identity"
