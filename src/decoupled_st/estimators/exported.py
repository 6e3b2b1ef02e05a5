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
        def call(logits: Tensor, **options: Any) -> Tensor:
            if not isinstance(logits, Tensor) and has_torch_function((logits,)):
                return handle_torch_function(call, (logits,), logits, **options)
            return function(logits, **options)

        return call  # type: ignore[return-value]

    return decorate
