"""What the modules that choose have in common."""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch.fx
from torch import Tensor, nn

from decoupled_st.estimators.contract import own_code, whole_number
from decoupled_st.estimators.spec import Estimator, check_estimator
from decoupled_st.estimators.surrogate import Temperature
from decoupled_st.temperatures import Rule, Tempered
from decoupled_st.temperatures.tempering import InForce, Tempering

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
    """A module with an estimator, which may be replaced during training, and a rule for `.eval()`."""

    batch_dims: int = 1
    """How many leading dimensions of the logits count samples; 0 where the logits are parameters."""
    tempering: Tempering | None

    def __init__(self, estimator: Estimator | Rule | Tempered, deterministic: bool) -> None:
        super().__init__()
        self.estimator = estimator
        self.deterministic = check_deterministic(deterministic)

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

    def in_force(self) -> Estimator | InForce:
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
        if unknown := set(temperatures) - set(estimator.parameters()):
            known = ", ".join(estimator.temperatures()) or "none"
            raise ValueError(f"the temperatures of {estimator} are {known}: got {sorted(unknown)} in temperatures=")
        parameters = {**estimator.parameters(), **temperatures}
        return estimator.functions[kind](logits, **parameters, noise=noise, **options)

    def batch_repr(self) -> str:
        """The part of `repr` for `batch_dims`: empty where it is 1."""
        return "" if self.batch_dims == 1 else f", batch_dims={self.batch_dims}"


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


def check_batch_dims(value: object) -> int:
    """How many leading dimensions count samples: an integer of at least 0."""
    number = whole_number(value)
    if number is None or number < 0:
        raise ValueError(f"batch_dims must be an integer of at least 0, got {value!r}")
    return number


def check_grad_scale(grad_scale: float | Tensor) -> float | Tensor:
    """A factor for gradients: a finite number, or a tensor."""
    if isinstance(grad_scale, Tensor):
        return grad_scale
    if isinstance(grad_scale, (str, bytes, complex)) or not hasattr(grad_scale, "__float__"):
        raise TypeError(f"grad_scale must be a number or a tensor, got {grad_scale!r}")
    if not math.isfinite(grad_scale):
        raise ValueError(f"grad_scale must be finite, got {grad_scale}")
    return grad_scale
