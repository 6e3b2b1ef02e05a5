"""What every estimator shares: the name it is called by, its arguments and their checks, the noise and the rows of a
call, and what a call comes to.

An estimator is a plain definition, a function of a `Call` and its parameters. `Call.run` has it made by a kernel where
there is one for this call (`kernels.can_run_fused` decides), else as the definition says.
"""

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from decoupled_st import kernels
from decoupled_st.estimators import noise as noises
from decoupled_st.estimators import surrogate
from decoupled_st.estimators.surrogate import Temperature

if TYPE_CHECKING:
    from typing_extensions import Unpack  # noqa: F401  # for those who import the names below

F = TypeVar("F", bound=Callable[..., Any])
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LARGEST_NOISE = 1e3
"""No noise of any dtype is larger: Gumbel noise from float64 ends below 750."""


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


class Call:
    """One call of an estimator: its checked arguments, what they come to, and the steps of a plain definition.

    `run` has a kernel make the choice, or the plain definition, in steps: `draw` a choice, or `choose` from `scores`,
    and send the surrogate's gradient with the `result`. Scores are values, with no gradient of their own.
    """

    trained: bool
    """True where a gradient may be asked for: if not, an estimator is its choice alone."""
    eager: bool
    """True where nothing traces or transforms the call, and the logits are a tensor of torch's own type."""
    source: Tensor
    """The logits in the dtype of computation, masked."""
    largest: Tensor | None = None
    """Where a row's largest logit is; known once `l` is."""
    top: Tensor
    """The largest logit of a row; 0 where there is none, NaN where it is infinite."""
    empty: Tensor | None = None
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
        self.trained = kernels.wanted(self.logits, *taus)
        if fused and kernels.can_run_fused(self.logits, self.scale, *taus, self.mask, self.noise):
            from decoupled_st.kernels import choice

            if choice.has(fused, self):
                return choice.choose(self, fused, taus, functools.partial(self._again, define, taus, fused))
        return self._plain(define, taus)

    def _again(self, define: Callable[..., Tensor], taus: Any, fused: str, logits: Tensor, noise: Any) -> Tensor:
        """The choice that a kernel made, by the plain definition: for gradients that no kernel can take."""
        call = Call(logits, self.dim, self.mask, None, noise, self.scale)
        call.trained = True
        return call._plain(define, (0.0, *taus[1:]) if fused == "clean" else taus)  # its gradient needs no draw

    def _plain(self, define: Callable[..., Tensor], taus: tuple[Any, ...]) -> Tensor:
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
        if self.dim is not None:
            top, self.largest = l.max(self.dim, keepdim=True)
            # Looked at where no device is waited for. Unequal to itself where NaN: inf - inf, in a row that is empty or
            # has a +inf, or a NaN of the caller's.
            less = l - top
            if not (self.eager and l.is_cpu and torch.equal(less, less)):
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
                t = surrogate.filled(scores, self.empty).div_(tau)  # in place, since nothing else uses these scores
                p = torch.softmax(t, self.dim)
            return self.send(hard, largest, tau, (p,))
        moving = self.tracked() if scores is self.l else surrogate.filled(scores + self.moved(), self.empty)
        tempered, gain = surrogate.temper(moving, tau, self.scale)
        if self.dim is None or largest is None:
            return surrogate.emit(hard, surrogate.sigmoid(tempered), gain, self.logits.dtype)
        return surrogate.emit(hard, surrogate.softmax(tempered, largest, self.dim), gain, self.logits.dtype)

    def has_node(self, tau: Temperature) -> bool:
        """True where `surrogate.Node` can send the gradient: not of a temperature that learns."""
        if isinstance(tau, Tensor) and tau.requires_grad:
            return False
        return self.eager and not isinstance(self.scale, Tensor)

    def send(
        self, hard: Tensor, largest: Tensor | None, tau: Temperature, ps: tuple[Tensor, ...], weights: Any = (1.0,)
    ) -> Tensor:
        """The value of `hard` with the gradient of `surrogate.Node`."""
        source = self.source if self.empty is None else self.source.masked_fill(self.empty, 0.0)
        others = (hard, largest, tau, ps, self.dim, self.scale, weights)
        z: Tensor = surrogate.Node.apply(source, others)[0]  # type: ignore[no-untyped-call]
        return z if z.dtype == self.logits.dtype else z.to(self.logits.dtype)

    def tracked(self) -> Tensor:
        """`l`, once it is known, with the derivative of the logits; none in rows that have nothing to choose from."""
        if self.dim is None:
            return self.source
        return surrogate.filled(self.source - self.top, self.empty)

    def moved(self) -> Tensor:
        """Zeros with the derivative of the logits; none where these are -inf, or +inf in a binary neuron."""
        fixed = self.source.detach()
        certain = fixed.isinf() if self.dim is None else fixed == -math.inf
        return surrogate.filled((self.source - fixed).masked_fill(certain, 0.0), self.empty)

    def relaxed(self, scores: Tensor, tau: Temperature) -> Tensor:
        """The value of softmax(scores / tau), or of sigmoid(scores / tau); 0 in rows with nothing to choose from."""
        if self.dim is None:
            return torch.sigmoid((scores / tau).detach())
        p = torch.softmax((surrogate.filled(scores, self.empty) / tau).detach(), self.dim)
        return p if self.empty is None else p.masked_fill(self.empty, 0.0)


def check_logits(logits: Tensor) -> None:
    """Refuse what is no floating-point tensor."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}")
    if logits.dtype not in _DTYPES:
        wide = " (float16, bfloat16, float32 or float64)" if logits.is_floating_point() else ""
        raise TypeError(f"logits must be a floating-point tensor{wide}, got {logits.dtype}")
    if logits.layout is not torch.strided:
        raise TypeError(f"logits must be a dense tensor, got layout {logits.layout}")
    if logits.is_nested:
        raise TypeError(
            "logits must be a dense tensor, got a nested one: torch.nested.to_padded_tensor makes it padded"
        )


def check_categories(logits: Tensor, dim: int, mask: Tensor | None) -> int:
    """`dim` counted from the end, once logits, `dim` and mask fit together."""
    check_logits(logits)
    if not isinstance(dim, int) and not hasattr(dim, "__index__"):  # torch.compile follows the first for any number
        raise TypeError(f"dim must be an integer, got dim={dim!r}")
    if not -logits.dim() <= dim < logits.dim():
        raise ValueError(f"dim must name a dimension of the logits, got dim={dim} for shape {tuple(logits.shape)}")
    if logits.shape[dim] == 0:
        raise ValueError(f"there must be at least one category, got shape {tuple(logits.shape)} with dim={dim}")
    check_mask(mask, logits)
    return dim - logits.dim() if dim >= 0 else dim


def check_mask(mask: Tensor | None, logits: Tensor) -> None:
    """Refuse a mask that is not of bools, or that does not broadcast to the logits."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(f"mask must be a bool tensor (True = allowed), got {given}")
    _check_broadcast("mask", mask, logits)


def to_compute(value: Tensor, logits: Tensor) -> Tensor:
    """A tensor in the dtype to compute in: the logits' own, but at least float32."""
    dtype = logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32
    return value if value.dtype == dtype else value.to(dtype)


def check(
    name: str, tau: Temperature, logits: Tensor, dim: int | None = None, *, zero: bool = False, why: str = ""
) -> Temperature:
    """A temperature for `logits`: a checked float, or a tensor whose shape (not its values) is checked.

    `dim`, counted from the end, is where the categories lie; a tensor must have size 1 there.

    Values inside a tensor are not looked at: that would wait for the device at every call.
    """
    if isinstance(tau, Tensor):
        _check_real(name, tau)
        _check_broadcast(name, tau, logits)
        if dim is not None and tau.dim() >= -dim and tau.shape[dim] != 1:
            raise ValueError(
                f"{name} must have size 1 along dim {dim}, where the categories lie: "
                f"{name} has shape {tuple(tau.shape)}, logits {tuple(logits.shape)}"
            )
        return to_compute(tau, logits)
    _check_number(name, tau)
    value, dtype = check_float(name, tau, zero=zero, why=why), torch.promote_types(logits.dtype, torch.float32)
    # Outside these it would become infinite, itself or times noise, or 0 where that is none.
    most, least = torch.finfo(dtype).max / _LARGEST_NOISE, torch.finfo(dtype).tiny
    if value > most or (value < least and not zero):
        bound = f"at most {most:.2g}" + ("" if zero else f" and at least {least:.2g}")
        raise ValueError(f"{name} must be {bound} in {dtype}, got {name}={value}")
    return value


def check_float(name: str, value: object, *, zero: bool = False, why: str = "") -> float:
    """The temperature as a float; `zero` says whether 0 is one, or `why` it is not."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a number here, got {type(value).__name__} "
            "(tensor temperatures go to the functions in `categorical` and `binary`)"
        )
    tau = float(value)  # type: ignore[arg-type]
    if not 0 <= tau < math.inf or (tau == 0 and not zero):
        bound = "at least 0" if zero else "above 0"
        raise ValueError(f"{name} must be finite and {bound}, got {name}={tau}" + (f": {why}" if why else ""))
    return tau


def _check_broadcast(name: str, value: Tensor, logits: Tensor) -> None:
    """Refuse a tensor that does not broadcast to the logits' shape, or that would enlarge it."""
    ours, theirs = tuple(value.shape), tuple(logits.shape)
    pairs = zip(ours[::-1], theirs[::-1])  # noqa: B905, since torch 2.6 cannot trace strict=False
    if len(ours) > len(theirs) or any(a not in (1, b) for a, b in pairs):
        raise ValueError(f"{name} must broadcast to the logits: {name} has shape {ours}, logits {theirs}")


def check_scale(grad_scale: float | Tensor, logits: Tensor) -> float | Tensor:
    """`grad_scale` as a float that is finite in the dtype of computation, or a detached tensor that broadcasts to the
    logits."""
    if type(grad_scale) is float and 1e-30 < abs(grad_scale) < 1e30:
        return grad_scale
    if isinstance(grad_scale, Tensor):
        _check_real("grad_scale", grad_scale)
        _check_broadcast("grad_scale", grad_scale, logits)
        return to_compute(grad_scale.detach(), logits)
    _check_number("grad_scale", grad_scale)
    scale, dtype = float(grad_scale), torch.promote_types(logits.dtype, torch.float32)
    if not abs(scale) <= torch.finfo(dtype).max:
        raise ValueError(f"grad_scale must be finite in {dtype}, got grad_scale={scale}")
    return scale


def _check_number(name: str, value: object) -> None:
    """Refuse what is neither tensor nor number, where either would do."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a number or a torch tensor that broadcasts to the logits, got {type(value).__name__}"
        )


def _check_real(name: str, value: Tensor) -> None:
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")


def is_number(value: object) -> bool:
    """True where `value` is a float, or turns into one as NumPy's scalars do; arrays, which have dimensions, do not."""
    if isinstance(value, (float, int)):
        return True
    other = isinstance(value, (Tensor, complex)) or getattr(value, "ndim", 0) > 0
    return hasattr(value, "__float__") and not other


def whole_number(value: object) -> int | None:
    """A whole number, NumPy's too, as an int; None where it is none, as 2.0 and True are not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
