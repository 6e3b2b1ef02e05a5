"""A step of a fleet against a step of what people write today, measured in one run.

    python benchmarks/fleet.py stochastic-binary --runs 32 [--device cuda --runs 512] [--data DIR]
    python benchmarks/fleet.py logic-gates [--data DIR]           the peer is torchlogix 0.2.2, where it is installed
    python benchmarks/fleet.py overhead [--data DIR]              recording, checkpoints and progress

Each prints one row a line and appends it to benchmarks/results.csv: medians of alternating repeats, so that a machine
that slows down slows both.
"""

import argparse
import csv
import platform
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from dst_lab.configs import Choice, LogicGatesConfig, StochasticBinaryConfig
from dst_lab.fleet.checkpoint import Checkpoint
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks import LogicGates, StochasticBinary

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ("benchmark", "what", "size", "p20_ms", "p50_ms", "p80_ms", "ratio_to_peer", "device", "torch", "date")


class PlainBinary(nn.Module):
    """A stochastic binary layer as scripts write it: Bernoulli, and the detach trick."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(logits / 0.7)
        z = torch.bernoulli(torch.sigmoid(logits / 0.1).detach())
        return z + (p - p.detach())


def plain_step(task: StochasticBinary) -> Callable[[], object]:
    """One run, one step, in plain PyTorch."""
    images, labels = task.splits["train"]
    widths = task.widths
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [nn.Linear(inputs, outputs), PlainBinary()]
    network = nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).to(task.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> None:
        index = torch.randint(0, len(images), (task.config.batch,), device=task.device)
        loss = F.cross_entropy(network(images[index]), labels[index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def torchlogix_step(device: torch.device) -> Callable[[], object] | None:
    """torchlogix's straight-through network of the same size, or None where it is not installed."""
    try:
        from torchlogix.layers import GroupSum, LogicDense
    except ImportError:
        return None
    sizes = [9216, 12_000, 12_000, 12_000, 12_000]
    options = {"device": str(device), "parametrization_kwargs": {"forward_sampling": "gumbel_hard"}}
    layers = [LogicDense(a, b, **options) for a, b in pairwise(sizes)]
    network = nn.Sequential(*layers, GroupSum(10, tau=100 / 3)).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    x, y = torch.randint(0, 2, (100, 9216), device=device).float(), torch.randint(0, 10, (100,), device=device)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimiser.step()

    return step


def measure(steps: dict[str, Callable[[], object]], seconds: float, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds a call, sorted; the candidates take turns."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, step in steps.items():
            wait()
            start = time.perf_counter()
            for _ in range(5):
                step()
            wait()
            times[name].append((time.perf_counter() - start) * 200)
    return {name: sorted(values) for name, values in times.items()}


def record(benchmark: str, what: str, size: str, times: list[float], ratio: float | None, device: torch.device) -> None:
    name = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    p20, p50, p80 = (times[int(q * (len(times) - 1))] for q in (0.2, 0.5, 0.8))
    numbers = [f"{value:.4f}" for value in (p20, p50, p80)]
    row = [
        benchmark,
        what,
        size,
        *numbers,
        f"{ratio:.2f}" if ratio else "",
        name,
        torch.__version__,
        time.strftime("%Y-%m-%d"),
    ]
    print(" | ".join(row))
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def stochastic_binary(args: argparse.Namespace, device: torch.device) -> None:
    configs = [
        StochasticBinaryConfig(
            **StochasticBinaryConfig.paper(), seed=i % 5,
            estimator=Choice.make("decoupled", tau_f=0.1 + 0.01 * (i // 5), tau_b=0.7),
        )
        for i in range(args.runs)
    ]  # fmt: skip
    task = StochasticBinary(configs[0], args.data, device)
    steps = {"plain": plain_step(task), "fleet": Fleet(task, configs).stepper()}
    times = measure(steps, args.seconds, device)
    middle = {name: values[len(values) // 2] for name, values in times.items()}
    record("stochastic-binary", "plain PyTorch, one run", "batch 128", times["plain"], None, device)
    ratio = middle["plain"] / (middle["fleet"] / args.runs)
    record("stochastic-binary", "fleet, whole step", f"batch 128, {args.runs} runs", times["fleet"], ratio, device)


def logic_gates(args: argparse.Namespace, device: torch.device) -> None:
    config = LogicGatesConfig(**LogicGatesConfig.paper(), estimator=Choice.make("decoupled", tau_f=0.1, tau_b=2.0))
    task = LogicGates(config, args.data, device)
    fleet = Fleet(task, [config] * args.runs)
    steps = {"fleet": fleet.stepper()}
    peer = torchlogix_step(device)
    if peer:
        steps["torchlogix"] = peer
    times = measure(steps, args.seconds, device)
    middle = {name: values[len(values) // 2] for name, values in times.items()}
    ratio = None
    if peer:
        record("logic-gates", "torchlogix gumbel_hard", "4 x 12,000, batch 100", times["torchlogix"], None, device)
        ratio = middle["torchlogix"] / (middle["fleet"] / args.runs)
    size = f"4 x 12,000, batch 100, {args.runs} runs"
    record("logic-gates", "fleet, whole step", size, times["fleet"], ratio, device)


def overhead(args: argparse.Namespace, device: torch.device) -> None:
    """A paper-scale epoch with and without recording, checkpoints and progress; evaluation counted apart."""
    from rich.console import Console

    from dst_lab.cli.progress import Display
    from dst_lab.store import Store

    choice = Choice.make("decoupled", tau_f=0.1, tau_b=0.7)
    base = {**StochasticBinaryConfig.paper(), "epochs": 1, "estimator": choice}
    configs = [StochasticBinaryConfig(**base, seed=seed) for seed in range(args.runs)]
    task = StochasticBinary(configs[0], args.data, device)
    bare = Fleet(task, configs)
    step = bare.stepper()
    step()
    start = time.perf_counter()
    for _ in range(bare.steps - 1):
        step()
    training = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        saving = Checkpoint(Path(folder) / "checkpoint.npz")
        fleet = Fleet(task, configs, saving)
        display = Display(Console(stderr=True))
        start = time.perf_counter()
        for _ in range(fleet.steps):
            display(fleet)
        progress = time.perf_counter() - start
        start = time.perf_counter()
        saving.save(fleet)
        checkpoint = time.perf_counter() - start
        records = Fleet(task, configs).train()
        with Store.open(Path(folder) / "store.sqlite", write=True) as store:
            start = time.perf_counter()
            store.put(records)
            recording = time.perf_counter() - start
    # At paper scale a run has 100 epochs; a checkpoint falls due every 60 s or 100 times what it takes, recording once.
    whole = 100 * training
    share = (100 * progress + checkpoint * whole / max(60, 100 * checkpoint) + recording) / whole
    print(
        f"overhead, {args.runs} runs, {device}: an epoch {training:.1f} s, progress {progress * 1e3:.1f} ms an epoch, "
        f"a checkpoint {checkpoint * 1e3:.0f} ms, recording {recording * 1e3:.0f} ms: {100 * share:.2f}% of 100 epochs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = {"stochastic-binary": stochastic_binary, "logic-gates": logic_gates, "overhead": overhead}
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data")
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    jobs[args.job](args, torch.device(args.device))


if __name__ == "__main__":
    main()
