"""What the benchmarks share: rows of results.csv, and steps as CUDA graphs."""

import csv
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ("benchmark", "what", "size", "p20_ms", "p50_ms", "p80_ms", "ratio_to_peer", "device", "torch", "date")
Step = Callable[[], object]


def record(benchmark: str, what: str, size: str, times: list[float], ratio: float | None, device: torch.device) -> None:
    """Print a row and append it: milliseconds, sorted, and how many times as fast as the peer."""
    name = f"{platform.machine()}, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        name = torch.cuda.get_device_name()
    numbers = [f"{times[int(q * (len(times) - 1))]:.4f}" for q in (0.2, 0.5, 0.8)]
    date = time.strftime("%Y-%m-%d")
    row = [benchmark, what, size, *numbers, f"{ratio:.2f}" if ratio else "", name, torch.__version__, date]
    print(" | ".join(row), flush=True)
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def captured(step: Step) -> Step:
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    return lambda: (graph.replay(), kept, step)  # what the step holds is what the graph reads
