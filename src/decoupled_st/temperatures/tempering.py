"""A rule inside a module: its state as buffers, and the choice at the temperatures that it sets."""

import math
from collections.abc import Callable
from functools import partial
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
        # The temperatures of the last pass, if the rule has taken it into account.
        self._counted: Taus | Numbers | None = None
        self._ahead: Ahead | None = None

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
        self._counted = None

    def reading(self) -> dict[str, float]:
        """The temperatures of the last pass of training (their mean, where they differ inside a batch; NaN before the
        first), and the state, as numbers."""
        taus = {f"tau_{name}": self.get_buffer(f"last_{name}").item() for name in Taus._fields}
        return {**taus, **{name: value.item() for name, value in self.state.items()}}

    def taus(
        self, logits: Tensor, *, dim: int | None, mask: Tensor | None = None, batch_dims: int = 1
    ) -> Taus | Numbers:
        """The temperatures of this pass; where the network trains, the rule then takes the logits into account."""
        if self._ahead is not None and (taus := self._ahead.taus(self, logits, dim, mask, batch_dims)):
            return taus
        view = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims)
        if any(value is not None and value.device != logits.device for value in self._buffers.values()):
            self._move_to(logits.device)
        state = self.state
        if self.training and self._counted is not None and recomputed():
            return self._counted
        if not (self.training and torch.is_grad_enabled()):
            self._counted = None if self.training else self._counted
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
        self._ahead = None
        before, taus = self._counted, self.tempered.rule.advance(state, view, self._last())
        self._counted = taus if _can_be_kept(taus.f) and not recomputed() else None
        if isinstance(taus, Numbers):
            if taus != before:
                self.write_down(taus)
            if next_pass := self.tempered.rule.unmeasured(state, view):
                self._ahead = Ahead(view, state["passes"], next_pass)
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
    """Passes of training on a CPU that a rule need not measure: all that they cost is to see that they are such.

    Args:
        view: of the pass before.
        passes: the buffer that counts them; where anything but this writes to it, there are no more such passes.
        next_pass: from `Rule.unmeasured`.
    """

    def __init__(self, view: View, passes: Tensor, next_pass: Callable[[], Numbers | None]) -> None:
        self.like = view.logits.shape, view.dim, view.batch_dims
        self.passes, self.version, self.next_pass = passes, passes._version, next_pass

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy has none: this writes to the buffers of the one that it was made for

    def taus(
        self, tempering: Tempering, logits: Tensor, dim: int | None, mask: Tensor | None, batch_dims: int
    ) -> Numbers | None:
        """The temperatures of a pass; None where it is not such a one."""
        if (
            kernels.traced()
            or mask is not None
            or not (tempering.training and torch.is_grad_enabled())
            or type(logits) not in (Tensor, nn.Parameter)
            or (logits.shape, dim, batch_dims) != self.like
            or tempering._buffers["passes"] is not self.passes
            or self.passes._version != self.version
            or not logits.is_cpu
            or recomputed()
        ):
            return None
        taus = self.next_pass()
        if taus is not None:
            self.version = self.passes._version
            if taus != tempering._counted:
                tempering.write_down(taus)
            tempering._counted = taus
        return taus


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
        return self._choose("categorical", taus)(logits, dim=dim, mask=mask, **options)

    def binary(self, logits: Tensor, **options: Any) -> Tensor:
        """0 or 1 from log-odds."""
        taus = self.tempering.taus(logits, dim=None, batch_dims=self.batch_dims)
        return self._choose("binary", taus)(logits, **options)

    def _choose(self, kind: str, taus: Taus | Numbers) -> Callable[..., Tensor]:
        if self.argmax:
            return partial(Decoupled.functions[kind], tau_f=0.0, tau_b=taus.b)
        tempered = self.tempering.tempered
        return partial(tempered.estimator.functions[kind], **tempered.constants, **tempered.place(taus))
