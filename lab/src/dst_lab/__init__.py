"""The laboratory: fleets of networks with discrete choices inside, recorded and compared."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dst_lab.networks import evaluate, load
    from dst_lab.tuning import Tuned, tune

__all__ = ["Tuned", "evaluate", "load", "tune"]

_HOMES = {"Tuned": "tuning", "tune": "tuning", "evaluate": "networks", "load": "networks"}


def __getattr__(name: str) -> Any:
    # Late: `dst_lab.cli` says how threads wait before torch is loaded.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
