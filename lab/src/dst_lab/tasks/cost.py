"""What the training of a lone run costs on a GPU, as metrics of the run."""

import math
import time

import torch


class Cost:
    """What training costs on a GPU: the time of a step between evaluations, and the peak of memory beyond the data."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.since, self.peak, self.done = device, math.nan, 0, 0
        self.data = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def begin(self) -> None:
        """A run begins. A captured graph's memory is taken when it is captured, before the first evaluation."""
        self.since, self.peak, self.done = math.nan, 0, 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def of_training(self, steps: int, every: int) -> dict[str, float]:
        """What the steps since the last evaluation took; the first ones, with compiling and capture, have no time."""
        if self.device.type != "cuda":
            return {}
        torch.cuda.synchronize(self.device)
        before, self.done = self.done, min(self.done + every, steps)
        self.peak = max(self.peak, torch.cuda.max_memory_allocated(self.device) - self.data)
        taken = 1e3 * (time.perf_counter() - self.since) / max(self.done - before, 1)
        return {"step_ms": taken, "peak_mib": self.peak / 2**20}

    def begin_steps(self) -> None:
        """An evaluation is over."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self.since = time.perf_counter()
