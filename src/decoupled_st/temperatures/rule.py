"""What a rule for temperatures is: a frozen value, its state as tensors, and its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from decoupled_st.estimators.spec import is_again
from decoupled_st.temperatures.observe import View

State: TypeAlias = dict[str, Tensor]
"""What a rule remembers, by name; each tensor has the shape of the runs, [] for one network."""


class Taus(NamedTuple):
    """The temperatures of one pass. Both broadcast to the logits: [runs..., 1, ..., 1]."""

    f: Tensor
    b: Tensor


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """A rule that sets tau_f and tau_b while a network trains; one state per layer.

        taus, state = rule(state, logits)

    makes the temperatures of this pass from what the passes before it left in `state`, and then takes these logits
    into account. Everything is a pure function of tensors: nothing waits for the device, and nothing in Python depends
    on a value, so that a rule can be compiled and captured in a CUDA graph.

    A rule of your own gives `name`, `start`, `observe` and `temperatures`, and is found by its name after `register`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> rule = dst.SelfTempered(steps=3)
        >>> state = rule.start()
        >>> for step in range(3):
        ...     logits = torch.randn(32, 4, 8)
        ...     taus, state = rule(state, logits)
        ...     z = dst.categorical.decoupled(logits, tau_f=taus.f, tau_b=taus.b)
    """

    name: ClassVar[str]

    @property
    def takes_argmax(self) -> bool:
        """True where tau_f may become 0, the argmax, which an estimator such as ReinMax does not allow."""
        return False

    def advice(self, view: View) -> str | None:
        """What a user should know before training on logits such as these; a module gives it as a warning, once."""
        return None

    @abstractmethod
    def start(self, runs: Sequence[int] = (), device: torch.device | str | None = None) -> State:
        """The state before the first pass. `runs` is the shape of the leading run dimensions, () for one network."""

    @abstractmethod
    def observe(self, state: State, view: View) -> State:
        """The state after a pass with these logits; `state` itself is left as it is."""

    @abstractmethod
    def temperatures(self, state: State, view: View) -> Taus:
        """The temperatures for a pass with these logits, by what is in `state`."""

    @torch.no_grad()
    def advance(self, state: State, view: View) -> Taus:
        """The temperatures of a pass, with the state changed in place."""
        # Copies: a rule may return its state itself.
        taus = Taus(*(tau.clone() if isinstance(tau, Tensor) else tau for tau in self.temperatures(state, view)))
        for name, value in self.observe(state, view).items():
            if value is not state[name]:
                state[name].copy_(value)
        return taus

    def __call__(
        self,
        state: State,
        logits: Tensor,
        *,
        dim: int | None = -1,
        mask: Tensor | None = None,
        run_dims: int = 0,
        batch_dims: int = 1,
    ) -> tuple[Taus, State]:
        """The temperatures of this pass, and the state after it.

        Args:
            state: from `start`, or from the pass before.
            logits: [runs..., batch..., latents..., K] with K along `dim`; or log-odds [runs..., batch..., neurons...].
                No gradient flows into the temperatures.
            dim: where the categories lie; None where the logits are log-odds of binary neurons.
            mask: bool, True = allowed, broadcastable to the logits.
            run_dims: how many leading dimensions count separate networks, each with temperatures of its own.
            batch_dims: how many dimensions after those count samples; 0 where the logits are parameters.
        """
        view = View.of(logits, dim=dim, mask=mask, run_dims=run_dims, batch_dims=batch_dims)
        runs = tuple(logits.shape[:run_dims])
        if not isinstance(state, Mapping):
            raise TypeError(f"state must be what start() or the pass before gave, got {type(state).__name__}")
        for name, value in state.items():
            if tuple(value.shape) != runs:
                raise ValueError(
                    f"the state must be of the logits' runs, {runs}: {name!r} has shape {tuple(value.shape)}; "
                    f"start(runs={runs}) makes one"
                )
        try:
            return self.temperatures(state, view), self.observe(state, view)
        except KeyError as error:
            names = ", ".join(sorted(self.start())) or "nothing"
            raise ValueError(f"the state of {type(self).__name__} has {names}, got one without {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, `{"name": ..., constants ...}`; `from_dict` reads it back."""
        return {"name": self.name, **asdict(self)}


_RULES: dict[str, type[Rule]] = {}
R = TypeVar("R", bound=type[Rule])


def register(cls: R) -> R:
    """Make a rule known by its `name`; a decorator for its class.

    Example:
        >>> from decoupled_st import temperatures
        >>> temperatures.registered()["self"]
        <class 'decoupled_st.temperatures.self_tempered.SelfTempered'>
    """
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        raise TypeError(f"register takes a class derived from Rule, got {cls!r}")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{cls.__name__} needs a name to be registered by, such as name: ClassVar[str] = 'self'")
    if name in _RULES and not is_again(cls, _RULES[name]):
        taken = f"{_RULES[name].__module__}.{_RULES[name].__qualname__}"
        raise ValueError(f"the name {name!r} belongs to {taken} already: give {cls.__name__} another")
    _RULES[name] = cls
    return cls


def registered() -> dict[str, type[Rule]]:
    """The known rules, by name."""
    return dict(_RULES)


def from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule that `to_dict` described; constants that are left out have their defaults.

    Example:
        >>> from decoupled_st import temperatures
        >>> temperatures.from_dict({"name": "self", "steps": 900}) == temperatures.SelfTempered(steps=900)
        True
    """
    if not isinstance(values, Mapping):
        raise TypeError(f'values must be a dictionary such as {{"name": "self"}}, got {values!r}')
    rest = dict(values)
    name = rest.pop("name", None)
    if not isinstance(name, str) or name not in _RULES:
        raise ValueError(
            f"unknown rule {name!r}: expected one of {', '.join(sorted(_RULES))}; dst.from_dict makes estimators"
        )
    cls = _RULES[name]
    expected = {field.name for field in fields(cls)}
    if not rest.keys() <= expected:
        unknown = ", ".join(sorted(map(str, rest.keys() - expected)))
        raise ValueError(f"rule {name!r} has no constant {unknown}: it has {', '.join(sorted(expected)) or 'none'}")
    required = {field.name for field in fields(cls) if field.default is field.default_factory is MISSING}
    if not required <= rest.keys():
        given = ", ".join(sorted(required & rest.keys())) or "none of them"
        raise ValueError(f"rule {name!r} needs the constants {', '.join(sorted(required))}, got {given}")
    return cls(**rest)
