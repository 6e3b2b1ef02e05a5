"""An estimator with a rule, and the rule inside a module: its state as buffers, and the choice at its temperatures."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st import kernels
from decoupled_st.estimators import Decoupled, Estimator
from decoupled_st.kernels import recomputed
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.rule import Rule, State, Taus

AfterChoice = Callable[[Tensor], Tensor]
"""A function of the choice that was made: the rule takes the pass into account once its gradient comes."""


@dataclass(frozen=True)
class Tempered:
    """An estimator and the rule that sets its temperatures, for a module of `nn`.

    A rule by itself stands for Decoupled ST: `nn.Categorical(SelfTempered(steps=40_000))`. This value is for the other
    estimators: one with tau_f and tau_b gets both, one whose single `tau` is of the gradient alone gets tau_b.

    Example:
        >>> import torch, decoupled_st as dst
        >>> gumbel = dst.temperatures.Tempered(dst.SelfTempered(steps=900), dst.GumbelSTE())
        >>> dst.nn.Categorical(gumbel)(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    rule: Rule
    estimator: Estimator = field(default_factory=lambda: Decoupled(tau_f=1.0, tau_b=1.0))
    _backward_alone: bool = field(init=False, repr=False, compare=False)
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
        # Now and not at the first pass: torch.compile does not follow the lock of a cached property.
        ruled = {"tau"} if backward_alone(self.estimator) else {"tau_f", "tau_b"}
        constants = {name: value for name, value in self.estimator.parameters().items() if name not in ruled}
        if "tau_f" in ruled and self.rule.takes_argmax:
            _check_argmax(self.rule, self.estimator)
        object.__setattr__(self, "constants", constants)
        object.__setattr__(self, "_backward_alone", "tau" in ruled)

    @property
    def drawn_at(self) -> float | None:
        """The temperature of the draw where it is the estimator's own; None where the rule sets it."""
        return self.estimator.sample_temperature if self._backward_alone else None

    def place(self, taus: Taus) -> Mapping[str, Tensor | float]:
        """The temperatures by the names that the estimator has for them."""
        return {"tau": taus.b} if self._backward_alone else {"tau_f": taus.f, "tau_b": taus.b}


def _check_argmax(rule: Rule, estimator: Estimator) -> None:
    """Refuse an estimator that cannot choose at tau_f = 0: a tensor's values are not looked at when it is called."""
    try:
        replace(estimator, tau_f=0.0)  # type: ignore[call-arg]
    except ValueError as error:
        raise ValueError(f"{rule} may set tau_f to 0: {error}") from error


def backward_alone(estimator: Estimator) -> bool:
    """True where the estimator's one temperature is its surrogate's; refuses an estimator that no rule can serve."""
    names = {spec.name for spec in fields(estimator)}
    if {"tau_f", "tau_b"} <= names:
        return False
    kind = type(estimator).__name__
    if "tau" not in names:
        raise ValueError(f"a rule sets tau_f and tau_b, and {kind} has no temperature: use it by itself, or Decoupled")
    tau: float = getattr(estimator, "tau")  # noqa: B009, since not every estimator has one
    moves = replace(estimator, tau=2 * tau).sample_temperature != estimator.sample_temperature  # type: ignore[call-arg]
    if moves or not estimator.discrete:  # the value of a relaxation is made at its temperature
        raise ValueError(
            f"a rule sets tau_f and tau_b apart, and {kind} has one temperature for both: use Decoupled instead"
        )
    return True


class Tempering(nn.Module):
    """The state of a rule, as buffers, and the choice at the temperatures that it sets.

    A pass of training reads the buffers, and its gradient moves them: so passes of one step share their temperatures,
    and where a pass is run again, by `torch.utils.checkpoint`, it has those of the first time and counts once. A choice
    that has no gradient, and one in compiled code or a transform of `torch.func`, is counted when it is made. One in
    `.eval()`, or while gradients are off, is not. The buffers are float32 and int64 whatever the network is cast to.
    Under DistributedDataParallel they are those of rank 0, which broadcasts its buffers before each pass, so that all
    ranks work at the same temperatures; not before a pass that follows one inside `no_sync()`, where each rank goes on
    by itself.
    """

    def __init__(self, tempered: Tempered) -> None:
        super().__init__()
        self.tempered = tempered
        start = tempered.rule.start()
        self.names = tuple(start)
        for name, value in start.items():
            self.register_buffer(name, value)
        for name in Taus._fields:  # of the last pass of training: for diagnostics, and for one that is run again
            self.register_buffer(f"last_{name}", torch.full((), math.nan, dtype=torch.float32), persistent=False)
        self._advised = False

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return {name: self._buffers[name] for name in self.names}  # type: ignore[misc]  # none of them is None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start again, as before the first pass."""
        for name, value in self.tempered.rule.start(device="cpu").items():  # whatever torch's default device is
            self.get_buffer(name).copy_(value)
        for name in Taus._fields:
            self.get_buffer(f"last_{name}").fill_(math.nan)

    def reading(self) -> dict[str, float]:
        """The temperatures of the last pass of training (their mean, where they differ inside a batch; NaN before the
        first), and the state, as numbers. Where the rule gives tau_b alone, tau_f is the estimator's own."""
        taus = {f"tau_{name}": self.get_buffer(f"last_{name}").item() for name in Taus._fields}
        if self.tempered.drawn_at is not None and not math.isnan(taus["tau_f"]):
            taus["tau_f"] = self.tempered.drawn_at
        return {**taus, **{name: value.item() for name, value in self.state.items()}}

    def taus(
        self, logits: Tensor, *, dim: int | None, mask: Tensor | None = None, batch_dims: int = 1
    ) -> tuple[Taus, AfterChoice]:
        """The temperatures of this pass, and what is to be called with the choice that is made at them."""
        view, rule, state = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims), self.tempered.rule, self.state
        if any(value is not None and value.device != logits.device for value in self._buffers.values()):
            self._move_to(logits.device)
            state = self.state
        # Copies: a rule may return its state itself, and the state moves on.
        taus = Taus(*(tau.clone() if isinstance(tau, Tensor) else tau for tau in rule.temperatures(state, view)))
        if not self.training:
            return taus, _unchanged
        if not (self._advised or torch.compiler.is_compiling()):
            self._advised = True
            if message := rule.advice(view):
                warnings.warn(message, stacklevel=2)
        last = Taus(self.get_buffer("last_f"), self.get_buffer("last_b"))
        again = is_run_again(logits)
        if self.names:  # else the temperatures follow from the logits, whenever they are made
            taus = Taus(_first(taus.f, last.f, again), _first(taus.b, last.b, again))
        means = [torch.as_tensor(tau).to(like.dtype).mean() for tau, like in zip(taus, last, strict=True)]
        self._write(last, means, again)
        if not torch.is_grad_enabled():
            return taus, _unchanged
        return taus, lambda z: self._count_after(z, state, view, again)

    def _count_after(self, z: Tensor, state: State, view: View, again: "bool | Tensor") -> Tensor:
        """Take a pass into account when the gradient of its choice comes, or at once."""
        if torch.compiler.is_compiling() or kernels.transformed() or not z.requires_grad:
            self._count(state, view, again)
        else:
            counted: list[bool] = []

            def count(_: Tensor) -> None:
                if not counted:  # a graph that is kept has its gradients more than once
                    counted.append(True)
                    self._count(state, view, False)

            z.register_hook(count)
        return z

    @torch.no_grad()
    def _count(self, state: State, view: View, again: "bool | Tensor") -> None:
        after = self.tempered.rule.observe(state, view)
        self._write([state[name] for name in after], list(after.values()), again)

    @torch.no_grad()
    def _write(self, places: Sequence[Tensor], values: Sequence[Tensor], again: "bool | Tensor") -> None:
        """Write values into buffers, but not where a pass is run again."""
        try:
            for place, value in zip(places, values, strict=True):
                if value is not place and again is not True:
                    place.copy_(value if again is False else torch.where(again, place, value))
        except RuntimeError as error:
            if not kernels.transformed() or ("in-place" not in str(error) and "inplace" not in str(error)):
                raise
            raise RuntimeError(
                f"{type(self.tempered.rule).__name__} updates its statistics while it trains, and torch.func lets a "
                "function change only what it is given: pass the buffers as well, functional_call(module, (parameters, "
                "buffers), ..), under vmap one copy of them per batch; or call .eval(), which leaves them as they are"
            ) from error

    def _move_to(self, device: torch.device) -> None:
        """Move all buffers. A state that is assigned to a module on meta leaves the last temperatures there."""
        for name in ("last_f", "last_b"):
            if self.get_buffer(name).is_meta:
                self._buffers[name] = torch.full((), math.nan, dtype=torch.float32, device=device)
        self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Tempering":
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in self._buffers.items():
            own = before[name]
            if own is not None and value is not None and value.dtype != own.dtype:
                self._buffers[name] = own.to(value.device)  # in float16 a mean over thousands of passes would not move
        return self


def _unchanged(z: Tensor) -> Tensor:
    return z


def _first(tau: Tensor, last: Tensor, again: "bool | Tensor") -> Tensor:
    """The temperature, or that of the first time where a pass is run again and has one for all its choices."""
    if again is False or (isinstance(tau, Tensor) and tau.numel() != 1):
        return tau
    tau = torch.as_tensor(tau, dtype=last.dtype, device=last.device).detach()  # a rule of one's own may give a number
    if again is True:
        return tau.copy_(last)  # as many copies as the first time has made, which a selective checkpoint counts
    first: Tensor = torch.ops.decoupled_st.first_run(tau, last)
    return first


def is_run_again(like: Tensor) -> Any:
    """True where a pass is run again, inside a backward pass; in compiled code, which asks when it runs and not when it
    is traced, a bool on the device of a tensor."""
    if not torch.compiler.is_compiling():
        return recomputed()
    return torch.ops.decoupled_st.is_run_again(like)


def _first_run(tau: Tensor, last: Tensor) -> Tensor:
    """An operator of our own, which no compiler computes twice: the backward pass would find another state."""
    return last.clone().expand_as(tau).contiguous() if recomputed() else tau.clone()


_library = torch.library.Library("decoupled_st", "FRAGMENT")
# They ask what is under way: not to be recorded once and replayed.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name))
_library.define("first_run(Tensor tau, Tensor last) -> Tensor", tags=_TAGS)
_library.impl("first_run", _first_run, "CompositeExplicitAutograd")
_library.define("is_run_again(Tensor like) -> Tensor", tags=_TAGS)
_library.impl(
    "is_run_again",
    lambda like: torch.full((), recomputed(), dtype=torch.bool, device=like.device),
    "CompositeExplicitAutograd",
)
torch.library.register_fake("decoupled_st::is_run_again", lambda like: like.new_empty((), dtype=torch.bool))
torch.library.register_fake("decoupled_st::first_run", lambda tau, last: torch.empty_like(tau))


class InForce:
    """A choice at the temperatures of a `Tempering`; called as an estimator is."""

    def __init__(self, tempering: Tempering, batch_dims: int, argmax: bool) -> None:
        self.tempering, self.batch_dims, self.argmax = tempering, batch_dims, argmax

    def categorical(self, logits: Tensor, *, dim: int = -1, mask: Tensor | None = None, **options: Any) -> Tensor:
        """One-hot along `dim`."""
        taus, after = self.tempering.taus(logits, dim=dim, mask=mask, batch_dims=self.batch_dims)
        return after(self._choose("categorical", taus, logits, dim=dim, mask=mask, **options))

    def binary(self, logits: Tensor, **options: Any) -> Tensor:
        """0 or 1 from log-odds."""
        taus, after = self.tempering.taus(logits, dim=None, batch_dims=self.batch_dims)
        return after(self._choose("binary", taus, logits, **options))

    def _choose(self, kind: str, taus: Taus, logits: Tensor, **options: Any) -> Tensor:
        if self.argmax:
            return Decoupled.functions[kind](logits, tau_f=0.0, tau_b=taus.b, **options)
        tempered = self.tempering.tempered
        return tempered.estimator.functions[kind](logits, **tempered.constants, **tempered.place(taus), **options)
