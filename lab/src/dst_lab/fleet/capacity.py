"""How many runs fit the device at once."""

import os

import torch

from dst_lab.fleet.contract import sample
from dst_lab.fleet.task import Task

MOST = {"cpu": 64, "cuda": 2048}
"""Beyond these a larger fleet is no faster, and a smaller one is recorded sooner."""


def runs_that_fit(task: Task, device: torch.device, sharers: int = 1) -> int:
    """A safe number of runs per fleet, from the memory that is free now and its `sharers`; at least 1."""
    if task.alone:
        return 1
    return max(1, min(MOST[device.type], int(0.7 * free_bytes(device) / sharers) // max(1, bytes_per_run(task))))


def bytes_per_run(task: Task) -> int:
    """About how much memory one more run takes."""
    parameters, fixed, buffers = (sample(task, part).values() for part in ("initial", "fixed", "buffers"))
    numbers = sum(tensor.numel() for tensor in parameters)
    held = sum(tensor.numel() * tensor.element_size() for tensor in (*fixed, *buffers))
    # Parameters, gradients and the optimiser's two moments, in float32.
    return 4 * 4 * numbers + held + task.bytes_per_run()


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        # What torch keeps of earlier fleets' memory is free for the next one.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        with open("/proc/meminfo") as file:
            kilobytes = next(line.split()[1] for line in file if line.startswith("MemAvailable"))
        return 1024 * int(kilobytes)
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
