"""Choices as modules: a category, a bit, a sign; and what they have in common with logic layers."""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.fx
from torch import Tensor, nn

from decoupled_st.estimators import ClippedSTE, Decoupled
from decoupled_st.estimators.call import own_code
from decoupled_st.estimators.spec import Estimator, check_estimator
from decoupled_st.estimators.surrogate import Temperature
from decoupled_st.temperatures import Rule, Tempered
from decoupled_st.temperatures.rule import Taus, Tempering

F = TypeVar("F", bound=Callable[..., Any])


def one_node(forward: F) -> F:
    """A module's `forward` that `torch.fx.symbolic_trace` records as one node, as it does with torch's own modules."""

    name = forward.__code__.co_varnames[1]  # what follows self

    @functools.wraps(forward)
    def call(self: nn.Module, *given: Any, **options: Any) -> Any:
        # torch.fx turns the arguments of what it traces itself, the root, into positional ones: no tuple is left.
        x = given if isinstance(given, torch.fx.Proxy) else given[0] if given else options.get(name)
        if not isinstance(x, Tensor) and isinstance(x, torch.fx.Proxy):
            tracer: Any = x.tracer
            # torch.fx puts the arguments of its root in place of these variables: seven are as many as a Codebook has.
            is_root = self is tracer.root
            if is_root:
                kind = type(self).__name__
                raise NotImplementedError(
                    f"torch.fx.symbolic_trace records a {kind} as one node of the network it is in: "
                    f"trace that network, or torch.nn.Sequential(module)"
                )
            return tracer.create_proxy("call_module", tracer.path_of_module(self), given, options)
        return forward(self, *given, **options)

    return own_code(call, forward.__qualname__.replace(".", "_"))  # type: ignore[return-value]


class Chooser(nn.Module):
    """A module with an estimator, which may be replaced during training; for the arguments see `Categorical`."""

    tempering: Tempering | None

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered,
        *,
        deterministic: bool = False,
        grad_scale: float | Tensor = 1.0,
        batch_dims: int = 1,
    ) -> None:
        super().__init__()
        self.estimator = estimator
        self.deterministic = check_deterministic(deterministic)
        self.grad_scale = check_grad_scale(grad_scale)
        self.batch_dims = batch_dims

    @property
    def estimator(self) -> Estimator | Rule | Tempered:
        """What the choice is made by; checked when it is assigned. A rule's statistics start again then."""
        return self._estimator

    @estimator.setter
    def estimator(self, value: Estimator | Rule | Tempered) -> None:
        tempered = Tempered(value) if isinstance(value, Rule) else value
        if not isinstance(tempered, Tempered):
            check_estimator(tempered)  # before anything of the old one is lost
        self.tempering = Tempering(tempered).train(self.training) if isinstance(tempered, Tempered) else None
        self._estimator = value
        # Made here: the torch.compile of older versions cannot trace the making of a value.
        self._argmax = value.deterministic() if isinstance(value, Estimator) else None

    @property
    def takes_argmax(self) -> bool:
        """True where `.eval()` and `deterministic` say so."""
        return self.deterministic and not self.training

    def in_force(self) -> "Estimator | InForce":
        """What makes this pass's choice."""
        if self.tempering is not None:
            return InForce(self.tempering, self.batch_dims, self.takes_argmax)
        estimator = self._argmax if self.takes_argmax else self._estimator
        assert isinstance(estimator, Estimator)
        return estimator

    def choose(
        self,
        kind: str,
        logits: Tensor,
        *,
        noise: Tensor | None,
        temperatures: Mapping[str, Temperature] | None = None,
        **options: Any,
    ) -> Tensor:
        """This pass's choice. The argmax ignores noise, which may be of a shape that only the estimator takes, and
        temperatures."""
        estimator = self.in_force()
        if self.takes_argmax:
            return getattr(estimator, kind)(logits, **options)
        if not temperatures:
            return getattr(estimator, kind)(logits, noise=noise, **options)
        if not isinstance(estimator, Estimator):
            raise ValueError(f"{self.estimator} sets the temperatures itself: leave temperatures= out, or pass a value")
        return estimator.functions[kind](logits, **estimator.at(temperatures), noise=noise, **options)

    def extra_repr(self) -> str:
        batch = "" if self.batch_dims == 1 else f", batch_dims={self.batch_dims}"
        return f"{self.estimator}, deterministic={self.deterministic}, grad_scale={self.grad_scale}{batch}"


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
        function, ruled = tempered.estimator.functions[kind], taus.named(tempered.ruled)
        return function(logits, **tempered.constants, **ruled, **options)


class Categorical(Chooser):
    """Logits in, one-hot out, by the given estimator.

    Args:
        estimator: such as `Decoupled(tau_f=2.0, tau_b=0.5)`; or a rule that sets the temperatures, such as
            `SelfTempered(steps=40_000)`. The attribute may be replaced during training, to anneal.
        dim: where the categories lie.
        deterministic: what `.eval()` does. False keeps the stochastic forward the network was trained with; True
            takes the argmax.
        grad_scale: multiplies the gradient sent to the logits; tau_b takes its 1/tau_b out.
        batch_dims: for a rule, how many leading dimensions of the logits count samples; 0 where they are parameters.

    Example:
        >>> import torch, decoupled_st as dst
        >>> choice = dst.nn.Categorical(dst.Decoupled(tau_f=2.0, tau_b=0.5))
        >>> choice(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered,
        *,
        dim: int = -1,
        deterministic: bool = False,
        grad_scale: float | Tensor = 1.0,
        batch_dims: int = 1,
    ) -> None:
        super().__init__(estimator, deterministic=deterministic, grad_scale=grad_scale, batch_dims=batch_dims)
        self.dim = check_dim(dim)

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        mask: Tensor | None = None,
        temperatures: Mapping[str, Temperature] | None = None,
        return_index: bool = False,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """One-hot along `dim`, of the logits' shape and dtype.

        Args:
            mask, generator, noise: those of `categorical.decoupled`.
            temperatures: tensors or floats by the estimator's names, in place of its own: one per row, or learned, as
                `{"tau_b": self.log_tau.exp()}` of a parameter of yours.
            return_index: return the category chosen too, int64, without `dim`.
        """
        options = {"dim": self.dim, "mask": mask, "generator": generator, "grad_scale": self.grad_scale}
        z = self.choose("categorical", logits, noise=noise, temperatures=temperatures, **options)
        return (z, z.detach().argmax(self.dim)) if return_index else z

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}"


class Binary(Chooser):
    """Log-odds in, 0 or 1 out, by the given estimator.

    Args:
        estimator, deterministic, grad_scale, batch_dims: as for `Categorical`; the argmax is 1 where the log-odds are
            above 0.

    Example:
        >>> import torch, decoupled_st as dst
        >>> neuron = dst.nn.Binary(dst.Decoupled(tau_f=0.1, tau_b=0.7), deterministic=True).eval()
        >>> neuron(torch.tensor([-1.0, 2.0]))
        tensor([0., 1.])
    """

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        temperatures: Mapping[str, Temperature] | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """0 or 1 for each log-odds, in their dtype; the arguments are those of `Categorical.forward`."""
        options = {"generator": generator, "grad_scale": self.grad_scale}
        return self.choose("binary", logits, noise=noise, temperatures=temperatures, **options)


class Sign(Binary):
    """-1 or 1 by a binary estimator: `2 z - 1`. For binary weights and activations.

        forward     -1 where x <= 0, else 1                              by the default
        backward    dL/dx = dL/dz where |x| <= 1, 0 elsewhere            estimator, the clipped identity

    Args:
        estimator: any of binary neurons; the sign is then drawn, or its gradient another. Its surrogate goes from -1
            to 1: of `Decoupled(tau_f=0.0, tau_b=0.5)`, tanh(x).
        deterministic, grad_scale, batch_dims: as for `Categorical`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> x = torch.tensor([-3.0, -0.2, 0.4], requires_grad=True)
        >>> y = dst.nn.Sign()(x)
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([-1.0, -1.0, 1.0], [0.0, 1.0, 1.0])
    """

    def __init__(self, estimator: Estimator | Rule | Tempered | None = None, **options: Any) -> None:
        super().__init__(ClippedSTE() if estimator is None else estimator, **options)

    @one_node
    def forward(self, logits: Tensor, **options: Any) -> Tensor:
        """-1 or 1 for each number, in its dtype; the arguments are those of `Binary.forward`."""
        return 2 * super().forward(logits, **options) - 1


def check_deterministic(value: object) -> bool:
    """True or False; a word such as "no" would be true."""
    if not isinstance(value, bool):
        raise TypeError(f"deterministic must be True or False, got {value!r}")
    return value


def check_dim(dim: object, name: str = "dim") -> int:
    """A dimension, as an integer."""
    try:
        return operator.index(dim)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer such as -1, got {dim!r}") from None


def check_grad_scale(grad_scale: float | Tensor) -> float | Tensor:
    """A factor for gradients: a finite number, or a tensor."""
    if isinstance(grad_scale, Tensor):
        return grad_scale
    if isinstance(grad_scale, (str, bytes, complex)) or not hasattr(grad_scale, "__float__"):
        raise TypeError(f"grad_scale must be a number or a tensor, got {grad_scale!r}")
    if not math.isfinite(grad_scale):
        raise ValueError(f"grad_scale must be finite, got {grad_scale}")
    return grad_scale
