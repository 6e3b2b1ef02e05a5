"""Bytes: what a call keeps for backward, and the most that it has at one time."""

from collections.abc import Callable

import torch
from torch import Tensor


def kept_by(call: Callable[[], Tensor], *given: Tensor) -> int:
    """Bytes of the distinct storages saved for backward, those of the output and of what was given left out."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = call()
    for tensor in (out, *given):
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def peak_of(run: Callable[[], object]) -> int:
    """The most bytes that were allocated at one time on the CPU beyond those before, by the profiler's own events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    now = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
