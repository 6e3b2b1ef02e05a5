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
    """The checked arguments of one call, and what its logits are for an estimator's plain definition."""

    logits: Tensor
    dim: int | None
    """Where the categories lie, counted from the end; None for binary neurons."""
    mask: Tensor | None
    scale: float | Tensor
    trained: bool
    """True where a gradient may be asked for: if not, an estimator is its choice alone."""
    eager: bool
    """True where nothing traces or transforms the call, and the logits are a tensor of torch's own type."""
    node: bool
    """True where `surrogate.Node` sends the gradient, to `source`: then the scores below are detached."""
    source: Tensor
    """The logits in the dtype of computation, masked."""
    largest: Tensor | None = None
    """Where a row's largest logit is; known once `l` is."""
    empty: Tensor | None = None
    """True for rows with nothing to choose from; None where every row is known to be finite at its largest."""
    _l: Tensor | None = None

    def __init__(
        self, logits: Tensor, generator: torch.Generator | None, noise: Tensor | None, scale: float | Tensor
    ) -> None:
        self.logits, self.generator, self.noise = logits, generator, noise
        self.scale = check_scale(scale, logits)

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
        call = cls(logits, generator, noise, grad_scale)
        call.dim, call.mask = dim, mask
        return call

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
        call = cls(logits, generator, noise, grad_scale)
        call.dim, call.mask = None, None
        return call

    def tau(self, name: str, value: Temperature, *, zero: bool = False, why: str = "") -> Temperature:
        """A temperature, checked."""
        return check(name, value, self.logits, self.dim, zero=zero, why=why)

    def run(self, define: Callable[..., Tensor], *taus: Any, fused: str | None = None, node: bool = True) -> Tensor:
        """What `define(call, *taus)` says.

        Args:
            define: the estimator's plain definition.
            taus: its parameters.
            fused: the surrogate of `kernels.choice` that does the same, where there is one: "clean", "perturbed" or
                "second order". Then `taus` are those of the draw and of the surrogate.
            node: False where the definition makes the gradient itself, of scores that have one.
        """
        noises.check_source(self.logits, self.generator, self.noise)
        self.trained = kernels.wanted(self.logits, *taus)
        if fused and kernels.can_run_fused(self.logits, self.scale, *taus, self.mask, self.noise):
            from decoupled_st.kernels import choice

            if choice.has(fused, self):
                known = (0.0, *taus[1:]) if fused == choice.CLEAN else taus  # its gradient needs no draw
                return choice.choose(self, fused, taus, functools.partial(self._again, define, known))
        return self._plain(define, taus, node)

    def _plain(self, define: Callable[..., Tensor], taus: tuple[Any, ...], node: bool) -> Tensor:
        l = allowed(self.logits, self.mask)
        self.source, self.eager = l, type(l) in kernels.TENSORS and not kernels.traced()
        self.node = node and self.eager and self.trained and surrogate.is_fixed(self.scale, *taus)
        return define(self, *taus)

    @property
    def l(self) -> Tensor:  # noqa: E743
        """The scores: the logits in the dtype of computation, masked, less the largest of their row."""
        if self._l is None:
            l = self.source.detach() if self.node else self.source
            if self.dim is not None:
                look = self.eager and l.is_cpu
                l, self.largest, self.empty = surrogate.centred(l, self.dim, look=look)
                self.source = surrogate.filled(self.source, self.empty)
            self._l = l
        return self._l

    def _again(self, define: Callable[..., Tensor], taus: Any, logits: Tensor, noise: Tensor | None) -> Tensor:
        """The choice that a kernel made, by the plain definition: for gradients that no kernel can take."""
        call = Call(logits, None, noise, self.scale)
        call.dim, call.mask, call.trained = self.dim, self.mask, True
        return call._plain(define, taus, True)

    def draw_noise(self) -> Tensor:
        """Gumbel noise of the logits' shape, or logistic noise for binary neurons: drawn, or as given."""
        return noises.draw(self.l, self.dim, self.generator, self.noise)

    def scores(self, tau: Temperature) -> Tensor:
        """l + tau * noise: what the choice at a temperature is the largest of; at 0 the logits themselves."""
        l = self.l if self.node else self.l.detach()
        if isinstance(tau, Tensor):
            return surrogate.perturbed(l, tau.detach(), self.draw_noise())
        return l if tau == 0 else torch.add(l, self.draw_noise(), alpha=tau)

    def draw(self, tau: Temperature) -> tuple[Tensor, Tensor | None]:
        """The choice at a temperature, 0 for the argmax, and its index, as `choose` gives them."""
        if not self.trained and not isinstance(tau, Tensor) and tau == 0:
            return self.choose(self.source, known=False)
        # The values of a tensor are not known; one may be NaN.
        return self.choose(self.scores(tau), known=not isinstance(tau, Tensor))

    def choose(self, scores: Tensor, *, known: bool = True) -> tuple[Tensor, Tensor | None]:
        """The one-hot of the largest score and its index; 1 where a log-odds is above 0 (and no index). `known` says
        that the scores are finite where the logits and the noise are."""
        if self.dim is None:
            return surrogate.threshold(scores), None
        finite = known and self.empty is None and self.noise is None
        return surrogate.one_hot(scores, self.dim, finite=finite)

    def result(
        self, hard: Tensor, tau: Temperature, scores: Tensor | None = None, largest: Tensor | None = None
    ) -> Tensor:
        """The value of `hard` with the gradient of softmax(scores / tau), or of sigmoid(scores / tau). `largest` is
        where a row's largest score is. Without scores: those of the logits themselves."""
        if not self.trained:
            return hard.to(self.logits.dtype)
        if scores is None:
            scores, largest = self.l, self.largest
        scores = surrogate.filled(scores, self.empty)
        if not self.node:
            tempered, gain = surrogate.temper(scores, tau, self.scale)
            return surrogate.emit(hard, self.soft(tempered, largest), gain, self.logits.dtype)
        if self.dim is None:
            t = scores / tau
            return self.send(hard, largest, tau, torch.sigmoid(-t.abs()).copysign(-t))
        # In place, since nothing else uses these scores.
        return self.send(hard, largest, tau, torch.softmax(scores.div_(tau), self.dim))

    def send(
        self, hard: Tensor, largest: Tensor | None, tau: Temperature, *ps: Tensor, weights: Any = (1.0,)
    ) -> Tensor:
        """The value of `hard` with the gradient of `surrogate.Node`."""
        others = (hard, largest, tau, ps, self.dim, self.scale, weights)
        z: Tensor = surrogate.Node.apply(self.source, others)[0]  # type: ignore[no-untyped-call]
        return z if z.dtype == self.logits.dtype else z.to(self.logits.dtype)

    def soft(self, tempered: Tensor, largest: Tensor | None) -> Tensor:
        """A function with the surrogate's derivative."""
        if self.dim is None or largest is None:
            return surrogate.sigmoid(tempered)
        return surrogate.softmax(tempered, largest, self.dim)

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


def allowed(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits in the dtype of computation, with -inf where the mask forbids."""
    l = to_compute(logits, logits)
    return l if mask is None else l.masked_fill(~mask, -math.inf)


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
    if type(tau) is float and 1e-30 < tau < 1e30:  # a temperature in every dtype of computation
        return tau
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
    if isinstance(grad_scale, Tensor):
        _check_real("grad_scale", grad_scale)
        _check_broadcast("grad_scale", grad_scale, logits)
        return to_compute(grad_scale.detach(), logits)
    if type(grad_scale) is float and 1e-30 < abs(grad_scale) < 1e30:
        return grad_scale
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
