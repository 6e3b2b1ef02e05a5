"""Functions under the name that users call them by."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

F = TypeVar("F", bound=Callable[..., Any])


def exported(path: str) -> Callable[[F], F]:
    """Give a function its public path, such as "decoupled_st.categorical.decoupled".

    A tracer that passes something else than a tensor (`torch.fx.symbolic_trace`) records the call as one node.
    """

    def decorate(function: F) -> F:
        function.__module__, function.__name__ = path.rsplit(".", 1)
        function.__qualname__ = function.__name__

        @functools.wraps(function)
        def call(logits: Tensor, *given: Any, **options: Any) -> Tensor:
            if not isinstance(logits, Tensor) and has_torch_function((logits,)):
                return handle_torch_function(call, (logits,), logits, *given, **options)
            return function(logits, *given, **options)

        return own_code(call, "_".join(path.split(".")[1:]))  # type: ignore[return-value]

    return decorate


def own_code(call: F, name: str) -> F:
    """A wrapper whose code is its own, of that name. torch.compile counts by code how often it has compiled something,
    and soon gives up on one code that stands for all functions."""
    call.__code__ = call.__code__.replace(co_name=name)
    return call
