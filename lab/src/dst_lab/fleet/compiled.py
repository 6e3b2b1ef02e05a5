"""Functions of plain operations that are compiled into one kernel on CUDA."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call, for tensors of any size."""
    return torch.compile(function, dynamic=True)
