"""One call of an estimator, from its arguments to its result.

An estimator is a plain definition, `define`, a function of a `Call` and its parameters. The way of a call:

    check       `Call.categorical` or `Call.binary` checks what all estimators take, `Call.tau` each temperature
    run         checks the noise; a kernel makes the choice where `kernels.can_run_fused` says so, as a registered
                operator under torch.compile; elsewhere `define` does, in the steps that follow
    choose      the one-hot of the largest score, from `scores`, which hold the noise; `draw` is both
    result      the choice with the gradient of a surrogate, by one autograd node, or by operations that can be traced
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from decoupled_st import kernels
from decoupled_st.estimators import noise as noises
from decoupled_st.estimators import surrogate
from decoupled_st.estimators.contract import check, check_categories, check_logits, check_scale, to_compute
from decoupled_st.estimators.surrogate import Temperature

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:
    Unpack = Any  # for type checkers alone: annotations with it are strings

F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """One call of an estimator: its checked arguments, and the steps of a plain definition.

    `_plain` sets the first three attributes below; `l`, when first read, the others. Scores carry no gradient.
    """

    trained: bool
    """True where a gradient may be asked for: if not, an estimator is its choice alone."""
    eager: bool
    """True where nothing traces or transforms the call, and the logits are a tensor of torch's own type."""
    source: Tensor
    """The logits in the dtype of computation, masked."""
    top: Tensor | None
    """The largest logit of a row; 0 where there is none, NaN where it is infinite. None for binary neurons."""
    largest: Tensor | None
    """Where a row's largest logit is; None for binary neurons."""
    empty: Tensor | None
    """True for rows with nothing to choose from; None where every row is known to be finite at its largest."""
    _l: Tensor | None = None

    def __init__(
        self,
        logits: Tensor,
        dim: int | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
        noise: Tensor | None,
        scale: float | Tensor,
    ) -> None:
        """`dim`, counted from the end, is where the categories lie; None for binary neurons."""
        self.logits, self.dim, self.mask = logits, dim, mask
        self.generator, self.noise, self.scale = generator, noise, scale

    @classmethod
    def categorical(
        cls,
        logits: Tensor,
        *,
        dim: int = -1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
        grad_scale: float | Tensor = 1.0,
    ) -> "Call":
        """A call of rows of categories; the arguments are those of `decoupled_st.categorical`."""
        dim = check_categories(logits, dim, mask)
        return cls(logits, dim, mask, generator, noise, check_scale(grad_scale, logits))

    @classmethod
    def binary(
        cls,
        logits: Tensor,
        *,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
        grad_scale: float | Tensor = 1.0,
    ) -> "Call":
        """A call of log-odds; the arguments are those of `decoupled_st.binary`."""
        check_logits(logits)
        return cls(logits, None, None, generator, noise, check_scale(grad_scale, logits))

    def tau(self, name: str, value: Temperature, *, zero: bool = False, why: str = "") -> Temperature:
        """A temperature, checked."""
        if type(value) is float and 1e-30 < value < 1e30:  # one in every dtype of computation
            return value
        return check(name, value, self.logits, self.dim, zero=zero, why=why)

    def run(self, define: Callable[..., Tensor], *taus: Any, fused: str | None = None) -> Tensor:
        """What `define(call, *taus)` says.

        Args:
            define: the estimator's plain definition.
            taus: its parameters.
            fused: the surrogate of `kernels.choice` that does the same, where there is one: "clean", "perturbed" or
                "second order". Then `taus` are those of the draw and of the surrogate.
        """
        noises.check_source(self.logits, self.generator, self.noise)
        if fused and kernels.can_run_fused(self.logits, self.scale, *taus, self.mask, self.noise):
            from decoupled_st.kernels import choice

            if choice.has(fused, self):
                return choice.choose(self, fused, taus, functools.partial(self._again, define, taus, fused))
        return self._plain(define, taus, trained=kernels.wanted(self.logits, *taus))

    def _again(self, define: Callable[..., Tensor], taus: Any, fused: str, logits: Tensor, noise: Any) -> Tensor:
        """The choice that a kernel made, by the plain definition: for gradients that no kernel can take."""
        call = Call(logits, self.dim, self.mask, None, noise, self.scale)
        taus = (0.0, *taus[1:]) if fused == "clean" else taus  # its gradient needs no draw
        return call._plain(define, taus, trained=True)

    def _plain(self, define: Callable[..., Tensor], taus: tuple[Any, ...], *, trained: bool) -> Tensor:
        self.trained = trained
        self.eager = type(self.logits) in kernels.TENSORS and not kernels.traced()
        l = to_compute(self.logits, self.logits)
        self.source = l if self.mask is None else l.masked_fill(~self.mask, -math.inf)
        return define(self, *taus)

    @property
    def l(self) -> Tensor:  # noqa: E743
        """The scores: the logits in the dtype of computation, masked and detached. Of categories less the largest of
        their row: the same choice and surrogate, without what rounding and overflow would do to large ones. A row with
        a NaN or +inf becomes NaN: an error upstream must not come out as a sample."""
        if self._l is not None:
            return self._l
        l = self.source.detach()
        self.top = self.largest = self.empty = None
        if self.dim is not None:
            top, self.largest = l.max(self.dim, keepdim=True)
            # Looked at where no device is waited for. Unequal to itself where NaN: inf - inf, in a row that is empty or
            # has a +inf, or a NaN of the caller's.
            less = l - top if self.eager and l.is_cpu else None
            if less is None or not torch.equal(less, less):
                self.empty = top == -math.inf
                top = top.masked_fill(self.empty, 0.0).masked_fill(top == math.inf, math.nan)
                less = l - top
            l, self.top = less, top
        self._l = l
        return l

    def scores(self, tau: Temperature) -> Tensor:
        """l + tau * noise, Gumbel noise for categories and logistic noise for binary neurons: what the choice at a
        temperature is the largest of. At 0 the logits themselves."""
        l = self.l
        if isinstance(tau, Tensor):
            noise = noises.draw(l, self.dim, self.generator, self.noise)
            return l + (tau.detach() * noise).masked_fill(tau == 0, 0.0)  # and not 0 * inf
        if tau == 0:
            return l
        if self.eager and l.is_cpu and self.dim is not None and self.noise is None and not kernels.INTERPRETED:
            # What is below in fewer calls: Gumbel noise is -log(e).
            return torch.sub(l, noises.exponential(l, self.generator, eager=True).log_(), alpha=tau)
        return torch.add(l, noises.draw(l, self.dim, self.generator, self.noise), alpha=tau)

    def draw(self, tau: Temperature) -> Tensor:
        """The choice at a temperature, 0 for the argmax."""
        if not self.trained and not isinstance(tau, Tensor) and tau == 0:
            return self.choose(self.source.detach(), known=False)[0]
        # The values of a tensor are not known; one may be NaN.
        return self.choose(self.scores(tau), known=not isinstance(tau, Tensor))[0]

    def choose(self, scores: Tensor, *, known: bool = True) -> tuple[Tensor, Tensor | None]:
        """The one-hot of the largest score and its index: zeros for an empty row, NaN for one with a NaN or +inf. Of
        binary neurons 1 where the score is above 0, and no index. `known` says that the scores are finite where the
        logits and the noise are."""
        if self.dim is None:
            # A tie is 0, as the argmax of (0, l) takes the first; NaN stays NaN.
            return (scores > 0).to(scores.dtype).masked_fill_(scores.isnan(), math.nan), None
        finite = known and self.empty is None and self.noise is None
        if finite:
            index = scores.argmax(self.dim, keepdim=True)
        else:
            top, index = scores.max(self.dim, keepdim=True)
            finite = self.eager and top.is_cpu and math.isfinite(top.sum())
        zeros = torch.zeros_like(scores)
        # torch.func.vmap and DTensor know the one only, memory is saved by the other.
        hard = zeros.scatter_(self.dim, index, 1.0) if self.eager else zeros.scatter(self.dim, index, 1.0)
        if not finite:
            hard.masked_fill_(top == -math.inf, 0.0).masked_fill_(~(top < math.inf), math.nan)
        return hard, index

    def result(
        self, hard: Tensor, tau: Temperature, scores: Tensor | None = None, largest: Tensor | None = None
    ) -> Tensor:
        """The value of `hard` with the gradient of softmax(scores / tau), or of sigmoid(scores / tau), for scores that
        have the derivative of the logits. `largest` is where a row's largest score is. Without scores: `l`."""
        if not self.trained:
            return hard.to(self.logits.dtype)
        if scores is None:
            scores, largest = self.l, self.largest
        if self.has_node(tau):
            if self.dim is None:
                t = scores / tau
                # The rarer side's, negative where that is 0: from a p that rounds to 1 nothing would be left.
                p = torch.sigmoid(-t.abs()).copysign(-t)
            else:
                t = self.filled(scores).div_(tau)  # in place, since nothing else uses these scores
                p = torch.softmax(t, self.dim)
            return self.send(hard, largest, tau, (p,))
        moving = self.tracked() if scores is self.l else self.filled(scores + self.moved())
        tempered, gain = surrogate.temper(moving, tau, self.scale)
        return surrogate.emit(hard, self.soft(tempered, largest), gain, self.logits.dtype)

    def has_node(self, tau: Temperature) -> bool:
        """True where `surrogate.Node` can send the gradient: not of a temperature that learns."""
        if isinstance(tau, Tensor) and tau.requires_grad:
            return False
        return self.eager and not isinstance(self.scale, Tensor)

    def send(
        self, hard: Tensor, largest: Tensor | None, tau: Temperature, ps: tuple[Tensor, ...], weights: Any = (1.0,)
    ) -> Tensor:
        """The value of `hard` with the gradient of `surrogate.Node`."""
        others = (hard, largest, tau, ps, self.dim, self.scale, weights)
        z: Tensor = surrogate.Node.apply(self.filled(self.source), others)[0]  # type: ignore[no-untyped-call]
        return z if z.dtype == self.logits.dtype else z.to(self.logits.dtype)

    def soft(self, tempered: Tensor, largest: Tensor | None) -> Tensor:
        """A function with the derivative of softmax(tempered), or of sigmoid(tempered)."""
        if self.dim is None or largest is None:
            return surrogate.sigmoid(tempered)
        return surrogate.relative(torch.softmax(tempered, self.dim), largest, self.dim)

    def tracked(self) -> Tensor:
        """`l` with the derivative of the logits; none in rows that have nothing to choose from."""
        return self.source if self.top is None else self.filled(self.source - self.top)

    def moved(self) -> Tensor:
        """Zeros with the derivative of the logits; none where these are -inf, or +inf in a binary neuron."""
        fixed = self.source.detach()
        certain = fixed.isinf() if self.dim is None else fixed == -math.inf
        return (self.source - fixed).masked_fill(certain, 0.0)

    def relaxed(self, scores: Tensor, tau: Temperature) -> Tensor:
        """The value of softmax(scores / tau), or of sigmoid(scores / tau); 0 in rows with nothing to choose from."""
        if self.dim is None:
            return torch.sigmoid((scores / tau).detach())
        return self.filled(torch.softmax((self.filled(scores) / tau).detach(), self.dim))

    def filled(self, scores: Tensor) -> Tensor:
        """The scores with zeros in empty rows, which then have no gradient."""
        return scores if self.empty is None else scores.masked_fill(self.empty, 0.0)


class BinaryOptions(TypedDict, total=False):
    """What the functions of `decoupled_st.binary` take besides the logits and their estimator's parameters."""

    generator: torch.Generator | None
    noise: Tensor | None
    grad_scale: float | Tensor


class CategoricalOptions(BinaryOptions, total=False):
    """What the functions of `decoupled_st.categorical` take."""

    dim: int
    mask: Tensor | None


def exported(path: str) -> Callable[[F], F]:
    """Give a function its public path, such as "decoupled_st.categorical.decoupled", and its common arguments by name.

    A tracer that passes something else than a tensor (`torch.fx.symbolic_trace`) records the call as one node.
    """
    kind, name = path.split(".")[1:]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(logits: Tensor, *given: Any, **options: Any) -> Tensor:
            if not isinstance(logits, Tensor) and has_torch_function((logits,)):
                return handle_torch_function(call, (logits,), logits, *given, **options)
            return function(logits, *given, **options)

        call.__module__, call.__name__, call.__qualname__ = f"decoupled_st.{kind}", name, name
        function.__qualname__ = name  # which Python's own errors of missing and unknown arguments begin with
        own = inspect.signature(function)
        common = inspect.signature(Call.categorical if kind == "categorical" else Call.binary).parameters.values()
        parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        call.__signature__ = own.replace(parameters=[*parameters, *list(common)[1:]])  # type: ignore[attr-defined]
        return own_code(call, f"{kind}_{name}")  # type: ignore[return-value]

    return decorate


def own_code(call: F, name: str) -> F:
    """Give a wrapper a code object of its own, with that name. torch.compile counts by code how often it has compiled
    something, and soon gives up on one code that stands for all functions."""
    call.__code__ = call.__code__.replace(co_name=name)
    return call
