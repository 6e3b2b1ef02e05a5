"""Estimators as values: small, frozen, comparable, good in configs and as dictionary keys."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from decoupled_st.estimators import binary, categorical
from decoupled_st.estimators.temperature import check_float


@dataclass(frozen=True, kw_only=True)
class Estimator(ABC):
    """A choice of estimator and its temperatures. Call `.categorical(logits, ...)` or `.binary(logits, ...)`.

    Temperatures here are floats; for tensors, call the functions in `categorical` and `binary`.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = check_float(field.name, getattr(self, field.name), zero=field.name == "tau_f")
            object.__setattr__(self, field.name, value)

    @property
    @abstractmethod
    def sample_temperature(self) -> float:
        """The temperature of the distribution the choice is drawn from (or relaxes); 0 where it is the argmax."""

    @abstractmethod
    def deterministic(self) -> "Estimator":
        """The argmax, with the surrogate at the logits themselves: what a network with fixed choices computes."""

    def categorical(
        self,
        logits: Tensor,
        *,
        dim: int = -1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
        grad_scale: float | Tensor = 1.0,
    ) -> Tensor:
        """One-hot along `dim`; the function of this name in `decoupled_st.categorical`."""
        function = getattr(categorical, self.name)
        options = {"dim": dim, "mask": mask, "generator": generator, "noise": noise, "grad_scale": grad_scale}
        return function(logits, **self._temperatures(), **options)

    def binary(
        self,
        logits: Tensor,
        *,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
        grad_scale: float | Tensor = 1.0,
    ) -> Tensor:
        """0 or 1 from log-odds; the function of this name in `decoupled_st.binary`."""
        function = getattr(binary, self.name)
        options = {"generator": generator, "noise": noise, "grad_scale": grad_scale}
        return function(logits, **self._temperatures(), **options)

    def _temperatures(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, `{"name": ..., temperatures ...}`; `from_dict` reads it back."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Decoupled(Estimator):
    """Decoupled ST: sample from softmax(l/tau_f), gradient through the Jacobian of softmax(l/tau_b)."""

    name: ClassVar[str] = "decoupled"
    tau_f: float
    tau_b: float

    @property
    def sample_temperature(self) -> float:
        return self.tau_f

    def deterministic(self) -> "Decoupled":
        return Decoupled(tau_f=0.0, tau_b=self.tau_b)


@dataclass(frozen=True, kw_only=True)
class SoftmaxSTE(Estimator):
    """Softmax STE: sample and gradient at one temperature."""

    name: ClassVar[str] = "softmax_ste"
    tau: float = 1.0

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)


@dataclass(frozen=True, kw_only=True)
class GumbelSTE(Estimator):
    """Straight-Through Gumbel-Softmax: sample at temperature 1, gradient at the perturbed logits."""

    name: ClassVar[str] = "gumbel_ste"
    tau: float = 1.0

    @property
    def sample_temperature(self) -> float:
        return 1.0

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)


@dataclass(frozen=True, kw_only=True)
class IdentitySTE(Estimator):
    """Identity STE: the argmax forward, the gradient unchanged."""

    name: ClassVar[str] = "identity_ste"

    @property
    def sample_temperature(self) -> float:
        return 0.0

    def deterministic(self) -> "IdentitySTE":
        return self


@dataclass(frozen=True, kw_only=True)
class Soft(Estimator):
    """The relaxation with no discrete step, as a reference; under `deterministic()` the argmax is taken."""

    name: ClassVar[str] = "soft"
    tau: float = 1.0

    @property
    def sample_temperature(self) -> float:
        return self.tau

    def deterministic(self) -> Decoupled:
        return Decoupled(tau_f=0.0, tau_b=self.tau)


_ESTIMATORS: dict[str, type[Estimator]] = {
    cls.name: cls for cls in (Decoupled, SoftmaxSTE, GumbelSTE, IdentitySTE, Soft)
}


def check_estimator(value: object) -> Estimator:
    """Refuse what is no estimator, where it is given rather than where it is first used."""
    if not isinstance(value, Estimator):
        raise TypeError(f"estimator must be a value such as Decoupled(tau_f=2.0, tau_b=0.5), got {value!r}")
    return value


def from_dict(values: Mapping[str, Any]) -> Estimator:
    """The estimator that `to_dict` described.

    Example:
        >>> from_dict({"name": "decoupled", "tau_f": 2.0, "tau_b": 0.5})
        Decoupled(tau_f=2.0, tau_b=0.5)
    """
    if not isinstance(values, Mapping):
        raise TypeError(f'values must be a dictionary such as {{"name": "identity_ste"}}, got {values!r}')
    rest = dict(values)
    name = rest.pop("name", None)
    if name not in _ESTIMATORS:
        raise ValueError(f"unknown estimator name {name!r}: expected one of {', '.join(sorted(_ESTIMATORS))}")
    cls = _ESTIMATORS[name]
    expected = {field.name for field in fields(cls)}
    required = {"tau_f", "tau_b"} & expected
    if not required <= rest.keys() <= expected:
        raise ValueError(f"estimator {name!r} takes {sorted(expected) or 'no temperature'}, got {sorted(rest)}")
    return cls(**rest)
