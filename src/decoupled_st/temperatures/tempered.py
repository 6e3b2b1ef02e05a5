"""An estimator and the rule that sets its temperatures, for a module."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from decoupled_st.estimators import Decoupled, Estimator
from decoupled_st.temperatures.rule import Rule


@dataclass(frozen=True)
class Tempered:
    """An estimator and the rule that sets its temperatures, for a module of `nn`.

    A rule by itself stands for Decoupled ST: `nn.Categorical(SelfTempered(steps=40_000))`. This value is for the other
    estimators: one with tau_f and tau_b gets both, one with a single `tau`, for the gradient alone, gets tau_b.

    Example:
        >>> import torch, decoupled_st as dst
        >>> gumbel = dst.temperatures.Tempered(dst.SelfTempered(steps=900), dst.GumbelSTE())
        >>> dst.nn.Categorical(gumbel)(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    rule: Rule
    estimator: Estimator = field(default_factory=lambda: Decoupled(tau_f=1.0, tau_b=1.0))
    ruled: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """The estimator's temperatures, and which of `Taus` each is: {"tau_f": "f", "tau_b": "b"}, or {"tau": "b"}."""
    constants: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """What the estimator's functions take besides the temperatures that the rule sets."""

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise TypeError(f"rule must be a value such as SelfTempered(steps=40_000), got {self.rule!r}")
        if not isinstance(self.estimator, Estimator):
            raise TypeError(f"estimator must be a value such as GumbelSTE(), got {self.estimator!r}")
        for kind in self.estimator.functions:
            if getattr(type(self.estimator), kind) is not getattr(Estimator, kind):
                raise ValueError(
                    f"a rule calls an estimator's `functions`, and {type(self.estimator).__name__} has a method "
                    f"{kind!r} of its own, which would not be called: put what it does into `functions`"
                )
        ruled = _ruled(self.estimator)
        if "tau_f" in ruled and self.rule.takes_argmax:
            try:
                replace(self.estimator, tau_f=0.0)  # type: ignore[call-arg]
            except ValueError as error:
                raise ValueError(f"{self.rule} may set tau_f to 0: {error}") from error
        # Now and not at the first pass: torch.compile does not follow the lock of a cached property.
        object.__setattr__(self, "ruled", ruled)
        constants = {name: value for name, value in self.estimator.parameters().items() if name not in ruled}
        object.__setattr__(self, "constants", constants)

    @property
    def drawn_at(self) -> float | None:
        """The temperature of the draw where it is the estimator's own; None where the rule sets it."""
        return None if "tau_f" in self.ruled else self.estimator.sample_temperature


def _ruled(estimator: Estimator) -> dict[str, str]:
    """What a rule sets of an estimator; refuses one with which it cannot set the gradient's temperature by itself."""
    names = {spec.name for spec in fields(estimator)}
    if {"tau_f", "tau_b"} <= names:
        return {"tau_f": "f", "tau_b": "b"}
    kind = type(estimator).__name__
    if "tau" not in names:
        raise ValueError(f"a rule sets tau_f and tau_b, and {kind} has no temperature: use it by itself, or Decoupled")
    tau: float = getattr(estimator, "tau")  # noqa: B009, since not every estimator has one
    moves = replace(estimator, tau=2 * tau).sample_temperature != estimator.sample_temperature  # type: ignore[call-arg]
    if moves or not estimator.discrete:  # the value of a relaxation is made at its temperature
        raise ValueError(
            f"a rule sets tau_f and tau_b apart, and {kind} has one temperature for both: use Decoupled instead"
        )
    return {"tau": "b"}
