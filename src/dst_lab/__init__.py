"""The laboratory: fleets of networks with discrete choices inside, recorded and compared."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dst_lab.tuning import Tuned, tune

__all__ = ["Tuned", "tune"]


def __getattr__(name: str) -> Any:
    # Late, so that what only reads records (dst_lab.store) does not import torch.
    if name in __all__:
        from dst_lab import tuning

        return getattr(tuning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
