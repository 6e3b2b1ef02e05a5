"""A rule inside a module: its state as buffers, and the choice at the temperatures that it sets."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st import kernels
from decoupled_st.estimators import Decoupled
from decoupled_st.estimators.operations.straight_through import recomputed
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.rule import Numbers, State, Taus
from decoupled_st.temperatures.tempered import Tempered


class Tempering(nn.Module):
    """The state of a rule, as buffers, and the choice at the temperatures that it sets.

    A pass of training updates the buffers; one in `.eval()` or without gradients leaves them as they are. They are
    float32 and int64 whatever the network is cast to. Under DistributedDataParallel they are those of rank 0, which
    broadcasts its buffers before each pass, so that all ranks work at the same temperatures. Where
    `torch.utils.checkpoint` runs a pass again, it has the temperatures of the first time, and counts once.
    """

    def __init__(self, tempered: Tempered) -> None:
        super().__init__()
        self.tempered = tempered
        start = tempered.rule.start()
        self.names = tuple(start)
        for name, value in start.items():
            self.register_buffer(name, value)
        for name in Taus._fields:  # of the last pass of training, for diagnostics
            self.register_buffer(f"last_{name}", torch.full((), math.nan, dtype=torch.float32), persistent=False)
        self._recent = Recent()

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return {name: self._buffers[name] for name in self.names}  # type: ignore[misc]  # none of them is None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin anew, as before the first pass."""
        for name, value in self.tempered.rule.start().items():
            self.get_buffer(name).copy_(value)
        for name in Taus._fields:
            self.get_buffer(f"last_{name}").fill_(math.nan)
        self._recent.counted = None

    def reading(self) -> dict[str, float]:
        """The temperatures of the last pass of training (their mean, where they differ inside a batch; NaN before the
        first), and the state, as numbers."""
        taus = {f"tau_{name}": self.get_buffer(f"last_{name}").item() for name in Taus._fields}
        return {**taus, **{name: value.item() for name, value in self.state.items()}}

    def taus(
        self, logits: Tensor, *, dim: int | None, mask: Tensor | None = None, batch_dims: int = 1
    ) -> Taus | Numbers:
        """The temperatures of this pass; where the network trains, the rule then takes the logits into account."""
        if not torch.compiler.is_compiling() and (ahead := self._recent.ahead):
            taus = ahead.taus(self, logits, dim, mask, batch_dims)
            if taus is not None:
                return taus
        view = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims)
        if any(value is not None and value.device != logits.device for value in self._buffers.values()):
            self._move_to(logits.device)
        state = self.state
        recent = self._recent
        if self.training and recent.counted is not None and recomputed():
            return recent.counted
        if not (self.training and torch.is_grad_enabled()):
            recent.counted = None if self.training else recent.counted
            return self.tempered.rule.temperatures(state, view)
        if torch.compiler.is_compiling() or not kernels.transformed():
            return self._advance(state, view)
        try:
            return self._advance(state, view)
        except RuntimeError as error:
            if "in-place" not in str(error) and "inplace" not in str(error):
                raise
            raise RuntimeError(
                f"{type(self.tempered.rule).__name__} updates its statistics while it trains, and torch.func lets a "
                "function change only what it is given: pass the buffers as well, functional_call(module, (parameters, "
                "buffers), ..), under vmap one copy of them per batch; or call .eval(), which leaves them as they are"
            ) from error

    def _advance(self, state: State, view: View) -> Taus | Numbers:
        """The temperatures of a pass of training, which the rule takes into account."""
        rule, recent, last = self.tempered.rule, self._recent, self._last()
        before, taus = recent.counted, rule.advance(state, view, last)
        kept = _can_be_kept(taus.f)
        recent.counted, recent.ahead = taus if kept and not recomputed() else None, None
        if isinstance(taus, Numbers) and taus != before:
            self.write_down(taus)
        if kept and (next_pass := rule.ahead(state, view, last)):
            recent.ahead = Ahead(view, self._buffers, next_pass)
        return taus

    def _last(self) -> Taus:
        return Taus(self.get_buffer("last_f"), self.get_buffer("last_b"))

    def write_down(self, taus: Numbers) -> None:
        """Keep the temperatures of a pass for those who ask."""
        for place, tau in zip(self._last(), taus, strict=True):
            place.fill_(tau)

    def _move_to(self, device: torch.device) -> None:
        """All buffers. A state that is assigned to a module on meta leaves the last temperatures there."""
        for name, place in zip(("last_f", "last_b"), self._last(), strict=True):
            if place.is_meta:
                self._buffers[name] = torch.full((), math.nan, dtype=torch.float32, device=device)
        self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Tempering":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in self._buffers.items():
            if value is not None and value.is_floating_point():
                self._buffers[name] = value.float()  # a mean over thousands of passes stands still in float16
        return self


class Ahead:
    """Passes of training like the one before: all that they cost is to see that they are such, and `Rule.ahead`.

    Args:
        view: of the pass before.
        buffers: of the `Tempering`; where one is replaced, there are no more such passes.
        next_pass: from `Rule.ahead`.
    """

    def __init__(
        self, view: View, buffers: dict[str, Tensor | None], next_pass: Callable[[Tensor], Taus | Numbers | None]
    ) -> None:
        logits = view.logits
        self.like = logits.shape, logits.dtype, logits.device, view.dim, view.batch_dims
        self.buffers, self.next_pass = tuple(buffers.values()), next_pass

    def taus(
        self, tempering: Tempering, logits: Tensor, dim: int | None, mask: Tensor | None, batch_dims: int
    ) -> Taus | Numbers | None:
        """The temperatures of a pass; None where it is not such a one."""
        if (
            kernels.traced()
            or mask is not None
            or not (tempering.training and torch.is_grad_enabled())
            or type(logits) not in kernels.TENSORS
            or (logits.shape, logits.dtype, logits.device, dim, batch_dims) != self.like
            or not all(map(operator.is_, tempering._buffers.values(), self.buffers))
            or recomputed()
        ):
            return None
        taus = self.next_pass(logits)
        if taus is not None:
            recent = tempering._recent
            if isinstance(taus, Numbers) and taus != recent.counted:
                tempering.write_down(taus)
            recent.counted = taus
        return taus


class Recent:
    """Of the last pass of training: its temperatures, if the rule has taken it into account, and the short way through
    the next. Not attributes of the module, which take as long to set as a small kernel to launch."""

    def __init__(self) -> None:
        self.counted: Taus | Numbers | None = None
        self.ahead: Ahead | None = None

    def __reduce__(self) -> tuple[type["Recent"], tuple[()]]:
        return Recent, ()  # a copy of the module begins anew: what is ahead writes to the buffers of the first


def _can_be_kept(tau: Tensor | float) -> bool:
    """True where a temperature means something after the call: a compiler or a transform makes some for its own use."""
    if isinstance(tau, float):
        return True
    return not torch.compiler.is_compiling() and type(tau) is Tensor and not kernels.transformed()


class InForce:
    """A choice at the temperatures of a `Tempering`; called as an estimator is."""

    def __init__(self, tempering: Tempering, batch_dims: int, argmax: bool) -> None:
        self.tempering, self.batch_dims, self.argmax = tempering, batch_dims, argmax

    def categorical(self, logits: Tensor, *, dim: int = -1, mask: Tensor | None = None, **options: Any) -> Tensor:
        """One-hot along `dim`."""
        taus = self.tempering.taus(logits, dim=dim, mask=mask, batch_dims=self.batch_dims)
        return self._choose("categorical", taus, logits, dim=dim, mask=mask, **options)

    def binary(self, logits: Tensor, **options: Any) -> Tensor:
        """0 or 1 from log-odds."""
        taus = self.tempering.taus(logits, dim=None, batch_dims=self.batch_dims)
        return self._choose("binary", taus, logits, **options)

    def _choose(self, kind: str, taus: Taus | Numbers, logits: Tensor, **options: Any) -> Tensor:
        if self.argmax:
            return Decoupled.functions[kind](logits, tau_f=0.0, tau_b=taus.b, **options)
        tempered = self.tempering.tempered
        return tempered.estimator.functions[kind](logits, **tempered.constants, **tempered.place(taus), **options)
