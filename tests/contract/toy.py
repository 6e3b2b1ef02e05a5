"""An estimator from outside the library: this file is all there is of it, and the suite takes it like any other.

A draw at temperature tau whose surrogate is half the identity, and the whole of it for the category that was drawn.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

import decoupled_st as dst
from decoupled_st.estimators.call import Call
from decoupled_st.estimators.spec import TEMPERATURE
from decoupled_st.estimators.surrogate import Temperature, emit, temper


def categorical(logits: Tensor, *, tau: Temperature = 1.0, **options: Any) -> Tensor:
    call = Call.categorical(logits, **options)
    return call.run(define, call.tau("tau", tau))


def binary(logits: Tensor, *, tau: Temperature = 1.0, **options: Any) -> Tensor:
    call = Call.binary(logits, **options)
    return call.run(define, call.tau("tau", tau))


def define(call: Call, tau: Temperature) -> Tensor:
    hard = call.draw(tau)
    finite, gain = temper(call.source.masked_fill(call.source.isinf(), 0.0), 1.0, call.scale)
    return emit(hard, finite * ((1 + hard) / 2), gain, call.logits.dtype)


@dst.estimators.register
@dataclass(frozen=True, kw_only=True)
class HalfIdentity(dst.Estimator):
    name: ClassVar[str] = "half_identity"
    functions: ClassVar = {"categorical": categorical, "binary": binary}
    tau: float = field(default=1.0, metadata=TEMPERATURE)

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> dst.Estimator:
        return dst.IdentitySTE()


def _vjp_categorical(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    scores = l + t["tau"] * noise
    return g * (1 + (scores == scores.amax(dim, keepdim=True)).to(g.dtype)) / 2


def _vjp_binary(l: Tensor, noise: Tensor, g: Tensor, t: dict[str, Any], dim: int) -> Tensor:
    return g * (1 + (l + t["tau"] * noise > 0).to(g.dtype)) / 2


VJPS = {"categorical": _vjp_categorical, "binary": _vjp_binary}
