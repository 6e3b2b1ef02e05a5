"""A rule for temperatures: what it sees of a layer, what it is, and its state inside a module."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from decoupled_st import kernels
from decoupled_st.estimators.contract import check_categories, check_logits, check_mask
from decoupled_st.estimators.surrogate import scattered
from decoupled_st.kernels import first_value, is_run_again, write

if TYPE_CHECKING:
    from decoupled_st.temperatures.tempered import Tempered

State: TypeAlias = dict[str, Tensor]
"""What a rule remembers, by name; each tensor has the shape of the runs, [] for one network."""
AfterChoice: TypeAlias = Callable[[Tensor], Tensor]
"""A function of the choice that was made: the rule takes the pass into account once its gradient comes."""

_ENOUGH, _FEWEST = 4096, 8  # logits per run, and rows of them however long


class Taus(NamedTuple):
    """The temperatures of one pass. Both broadcast to the logits: [runs..., 1, ..., 1]."""

    f: Tensor
    b: Tensor

    def named(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """By an estimator's names for them, `Tempered.ruled`."""
        return {name: getattr(self, part) for name, part in names.items()}


@dataclass(frozen=True, eq=False)
class View:
    """A layer's logits for one pass, and what their dimensions mean; made by `View.of`."""

    logits: Tensor  # detached
    mask: Tensor | None
    dim: int | None  # counted from the end; None for log-odds
    run_dims: int
    batch_dims: int

    @classmethod
    def of(
        cls, logits: Tensor, *, dim: int | None = -1, mask: Tensor | None = None, run_dims: int = 0, batch_dims: int = 1
    ) -> "View":
        """Checked; see `Rule.__call__` for the arguments."""
        if dim is not None:
            dim = check_categories(logits, dim, mask)
        else:
            check_logits(logits)
            check_mask(mask, logits)
        leading = logits.dim() if dim is None else logits.dim() + dim
        if run_dims < 0 or batch_dims < 0 or run_dims + batch_dims > leading:
            before = "the" if dim is None else "before the categories the"
            raise ValueError(
                f"{before} logits must have run_dims + batch_dims = {run_dims} + {batch_dims} leading dimensions, "
                f"got shape {tuple(logits.shape)}"
            )
        return cls(logits.detach(), mask, dim, run_dims, batch_dims)

    def spread(self, value: Tensor) -> Tensor:
        """One number per run, [runs...], as a tensor that broadcasts to the logits."""
        return value.reshape(*value.shape, *(1,) * (self.logits.dim() - self.run_dims))

    def masked(self, by: float) -> Tensor:
        """The logits with `by` where they are masked."""
        return self.logits if self.mask is None else self.logits.masked_fill(~self.mask, by)

    @property
    def categories(self) -> int:
        """How many categories there are to choose from; 2 for log-odds."""
        return 2 if self.dim is None else self.logits.shape[self.dim]

    @property
    def samples(self) -> int:
        """How many samples the batch has; 1 where the logits are parameters."""
        return math.prod(self.logits.shape[self.run_dims : self.run_dims + self.batch_dims])

    @property
    def latents(self) -> int:
        """How many choices one sample makes."""
        count = math.prod(self.logits.shape[self.run_dims + self.batch_dims :])
        return count if self.dim is None else count // self.categories

    @property
    def bits(self) -> float:
        """The most bits that the choices of one sample can carry: latents times log2 of the categories."""
        return self.latents * math.log2(max(self.categories, 1))

    def thinned(self) -> "View":
        """A view of some rows from all over, as one batch, where there are more than a mean needs; else this view."""
        rows = self.samples * self.latents
        few = max(_ENOUGH // (1 if self.dim is None else self.categories), _FEWEST)
        if rows <= few:
            return self
        at = scattered(rows, few, self.logits.device)
        mask = None if self.mask is None else self._rows(self.mask.expand_as(self.logits), at)
        dim = None if self.dim is None else -1
        return replace(self, logits=self._rows(self.logits, at), mask=mask, dim=dim, batch_dims=1)

    def _rows(self, x: Tensor, at: Tensor) -> Tensor:
        """[runs..., rows at these places, K], of logits or what has their shape."""
        x = x if self.dim is None else x.movedim(self.dim, -1)
        end = x.dim() - (self.dim is not None)
        if x.is_contiguous():
            return x.flatten(self.run_dims, end - 1).index_select(self.run_dims, at)
        # To flatten these would copy all of them. By arithmetic: `torch.unravel_index` copies from the host.
        along: list[Tensor] = []
        for size in reversed(x.shape[self.run_dims : end]):
            along.insert(0, at % size)
            at = at // size
        places: tuple[slice | Tensor, ...] = (*(slice(None),) * self.run_dims, *along)
        return x[places]


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
        """What a user should know before training on such logits: a module gives it as a warning."""
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
        taus = _copies(self.temperatures(state, view))
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
        for name, value in state.items():
            if tuple(value.shape) != runs:
                raise ValueError(
                    f"the state must be of the logits' runs, {runs}: {name!r} has shape {tuple(value.shape)}; "
                    f"start(runs={runs}) makes one"
                )
        return self.temperatures(state, view), self.observe(state, view)

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, `{"name": ..., constants ...}`; `from_dict` reads it back."""
        return {"name": self.name, **asdict(self)}


def _copies(taus: Taus) -> Taus:
    """A rule may return its state itself, and the state moves on."""
    return Taus(*(tau.clone() if isinstance(tau, Tensor) else tau for tau in taus))


class Tempering(nn.Module):
    """The state of a rule, as buffers of a module.

    A pass of training reads the buffers, and its gradient moves them: so passes of one step share their temperatures,
    and where a pass is run again, by `torch.utils.checkpoint`, it has those of the first time and counts once. A choice
    that has no gradient, and one in compiled code or a transform of `torch.func`, is counted when it is made. One in
    `.eval()`, or while gradients are off, is not. The buffers are float32 and int64 whatever the network is cast to.
    Under DistributedDataParallel they are those of rank 0, which broadcasts its buffers before each pass, so that all
    ranks work at the same temperatures; not before a pass that follows one inside `no_sync()`, where each rank goes on
    by itself.
    """

    def __init__(self, tempered: "Tempered") -> None:
        super().__init__()
        self.tempered = tempered
        start = tempered.rule.start()
        self.names = tuple(start)
        for name, value in start.items():
            self.register_buffer(name, value)
        for name in Taus._fields:  # of the last pass of training: for diagnostics, and for one that is run again
            self.register_buffer(f"last_{name}", torch.full((), math.nan, dtype=torch.float32), persistent=False)

    @property
    def state(self) -> State:
        """The rule's state, by name."""
        return {name: self._buffers[name] for name in self.names}  # type: ignore[misc]  # none of them is None

    @property
    def last(self) -> Taus:
        """The temperatures of the last pass of training: their mean, where they differ inside a batch."""
        return Taus(self.get_buffer("last_f"), self.get_buffer("last_b"))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start again, as before the first pass."""
        for name, value in self.tempered.rule.start(device="cpu").items():  # whatever torch's default device is
            self.get_buffer(name).copy_(value)
        for tau in self.last:
            tau.fill_(math.nan)

    def reading(self) -> dict[str, float]:
        """The temperatures of the last pass of training (their mean, where they differ inside a batch; NaN before the
        first), and the state, as numbers. Where the rule gives tau_b alone, tau_f is the estimator's own."""
        tau_f, tau_b = (tau.item() for tau in self.last)
        if self.tempered.drawn_at is not None and not math.isnan(tau_f):
            tau_f = self.tempered.drawn_at
        return {"tau_f": tau_f, "tau_b": tau_b, **{name: value.item() for name, value in self.state.items()}}

    def taus(
        self, logits: Tensor, *, dim: int | None, mask: Tensor | None = None, batch_dims: int = 1
    ) -> tuple[Taus, AfterChoice]:
        """The temperatures of this pass, and a function to call with the choice that is made at them."""
        view = View.of(logits, dim=dim, mask=mask, batch_dims=batch_dims)
        if any(value is not None and value.device != logits.device for value in self._buffers.values()):
            self._move_to(logits.device)
        state = self.state
        taus = _copies(self.tempered.rule.temperatures(state, view))
        if not self.training:
            return taus, _unchanged
        # Compiled code does not ask: with changing shapes it could not write the numbers of the text.
        if not torch.compiler.is_compiling() and (message := self.tempered.rule.advice(view)):
            warnings.warn(message, stacklevel=2)
        last, again = self.last, is_run_again(logits)
        if self.names:  # else the temperatures follow from the logits, whenever they are made
            taus = Taus(first_value(taus.f, last.f, again), first_value(taus.b, last.b, again))
        means = [torch.as_tensor(tau).to(like.dtype).mean() for tau, like in zip(taus, last, strict=True)]
        write(last, means, again)
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

    def _count(self, state: State, view: View, again: "bool | Tensor") -> None:
        with torch.no_grad():
            after = self.tempered.rule.observe(state, view)
        write([state[name] for name in after], list(after.values()), again)

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
