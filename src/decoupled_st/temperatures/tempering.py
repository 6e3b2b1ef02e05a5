"""A rule inside a module: its state as buffers, and the choice at the temperatures that it sets."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from decoupled_st import kernels
from decoupled_st.estimators import Decoupled
from decoupled_st.temperatures import compiled
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.passes import Ahead, Passes
from decoupled_st.temperatures.rule import Numbers, State, Taus, own_taus
from decoupled_st.temperatures.tempered import Tempered


class Tempering(nn.Module):
    """The state of a rule, as buffers, and the choice at the temperatures that it sets.

    A pass of training updates the buffers; one in `.eval()` or without gradients leaves them as they are. They are
    float32 and int64 whatever the network is cast to. Under DistributedDataParallel they are those of rank 0, which
    broadcasts its buffers before each pass, so that all ranks work at the same temperatures; not before a pass that
    follows one inside `no_sync()`, where each rank goes on by itself. Where a pass is run again, by
    `torch.utils.checkpoint` or a compiler, it has the temperatures of the first time, and counts once.
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
        self._passes = Passes()
        self._advised = False

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return {name: self._buffers[name] for name in self.names}  # type: ignore[misc]  # none of them is None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin anew, as before the first pass."""
        for name, value in self.tempered.rule.start(device="cpu").items():  # whatever torch's default device is
            self.get_buffer(name).copy_(value)
        for name in Taus._fields:
            self.get_buffer(f"last_{name}").fill_(math.nan)
        self._passes = Passes()

    def reading(self) -> dict[str, float]:
        """The temperatures of the last pass of training (their mean, where they differ inside a batch; NaN before the
        first; of a rule without state also of a pass that a checkpoint runs again), and the state, as numbers. Of an
        estimator to which the rule gives tau_b alone, tau_f is its own."""
        taus = {f"tau_{name}": self.get_buffer(f"last_{name}").item() for name in Taus._fields}
        if self.tempered.drawn_at is not None and not math.isnan(taus["tau_f"]):
            taus["tau_f"] = self.tempered.drawn_at
        return {**taus, **{name: value.item() for name, value in self.state.items()}}

    def taus(
        self, logits: Tensor, *, dim: int | None, mask: Tensor | None = None, batch_dims: int = 1
    ) -> Taus | Numbers:
        """The temperatures of this pass; where the network trains, the rule then takes the logits into account."""
        if kernels.is_recorded() or not kernels.is_watched():
            return self._taus(logits, dim, mask, batch_dims)
        # Who counts operations, or saves what some of them gave, is to see the choice alone.
        with _disable_current_modes():
            return self._taus(logits, dim, mask, batch_dims)

    def _taus(self, logits: Tensor, dim: int | None, mask: Tensor | None, batch_dims: int) -> Taus | Numbers:
        learns = self.training and torch.is_grad_enabled()
        if torch.compiler.is_compiling():
            view, state = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims), self._state_for(logits)
            if learns:
                return compiled.advance(self.tempered.rule, state, view, self._last(), self._passes.number)
            return self.tempered.rule.temperatures(state, view)
        passes = self._passes
        ahead = passes.ahead
        if learns and ahead and (taus := ahead.taus(self._buffers, logits, dim, mask, batch_dims)):
            return self._counted(taus, logits)
        view = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims)
        state = self._state_for(logits)
        if self.training and (first := passes.first_run(logits)):
            if learns and not first.counted:
                self._advance(state, view)
                self._write(first.taus)
                first.counted = True
            return first.taus
        if not learns:
            taus = own_taus(self.tempered.rule.temperatures(state, view))
            if self.training and state:
                passes.remember(logits, taus, counted=False)
            return taus
        if not kernels.transformed():
            return self._counted(self._advance(state, view), logits)
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

    def _state_for(self, logits: Tensor) -> State:
        """The rule's state, on the logits' device."""
        if any(value is not None and value.device != logits.device for value in self._buffers.values()):
            self._move_to(logits.device)
        return self.state

    def _advance(self, state: State, view: View) -> Taus | Numbers:
        """The temperatures of a pass of training, which the rule takes into account."""
        rule, last = self.tempered.rule, self._last()
        if not self._advised:
            self._advised = True
            if message := rule.advice(view):
                warnings.warn(message, stacklevel=2)
        taus = rule.advance(state, view, last)
        next_pass = None if kernels.transformed() else rule.ahead(state, view, last)
        self._passes.ahead = Ahead(view, self._buffers, next_pass) if next_pass else None
        if not isinstance(taus, Numbers):
            self._passes.written = None  # the rule has written them itself
        return taus

    def _counted(self, taus: Taus | Numbers, logits: Tensor) -> Taus | Numbers:
        """The temperatures of a pass that the rule has taken into account, kept for those who ask for them."""
        if isinstance(taus, Numbers):
            self._write(taus)
        if self.names:  # else the temperatures follow from the logits, however often they are made
            self._passes.remember(logits, taus, counted=True)
        return taus

    def _write(self, taus: Taus | Numbers) -> None:
        """Keep the temperatures of a pass in the buffers for the last ones."""
        passes, last = self._passes, self._last()
        if isinstance(taus, Numbers) and passes.written is not None:
            place, version, written = passes.written
            if place is last.f and version == place._version and written == taus:
                return
        for place, tau in ((last.f, taus.f), (last.b, taus.b)):
            if isinstance(tau, Tensor):
                place.copy_(tau.to(place.dtype).mean())
            else:
                place.fill_(tau)
        passes.written = (last.f, last.f._version, taus) if isinstance(taus, Numbers) else None

    def _last(self) -> Taus:
        last_f, last_b = self._buffers["last_f"], self._buffers["last_b"]
        assert last_f is not None
        assert last_b is not None
        return Taus(last_f, last_b)

    def _move_to(self, device: torch.device) -> None:
        """All buffers. A state that is assigned to a module on meta leaves the last temperatures there."""
        for name, place in zip(("last_f", "last_b"), self._last(), strict=True):
            if place.is_meta:
                self._buffers[name] = torch.full((), math.nan, dtype=torch.float32, device=device)
        self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Tempering":
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in self._buffers.items():
            own = before[name]
            if own is not None and value is not None and value.dtype != own.dtype:
                self._buffers[name] = own.to(value.device)  # a mean over thousands of passes stands still in float16
        return self


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
