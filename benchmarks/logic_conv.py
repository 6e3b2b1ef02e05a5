"""Step time and memory of convolutional logic networks, on one GPU or a CPU, and plain torch beside.

    python benchmarks/logic_conv.py [--sizes cifar10-s,cifar10-m] [--seconds 1.0] [--plain] [--peer] [--profile]

A step is the whole of it: 128 images of bits on the device, forward, cross-entropy, backward, AdamW; on a GPU replayed
as a CUDA graph. `--plain` measures `dst.use_kernels(False)` too, `--peer` torchlogix's networks of these names (Python
3.12), compiled by `torch.compile` and called step by step. `--no-record` leaves benchmarks/results.csv alone.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from recording import Step, captured, record
from torch import nn

import decoupled_st as dst

BATCH = 128
ESTIMATORS = {"soft": dst.Soft(tau=1.0), "argmax": dst.Decoupled(tau_f=0.0, tau_b=2.0)}


def ours(name: str, estimator: dst.Estimator, device: torch.device) -> nn.Module:
    net = dst.nn.logic_tree_net(name, estimator, device=device)
    with torch.no_grad():
        for layer in net.trees:
            layer.logits += torch.randn_like(layer.logits)
    return net


def torchlogix(name: str, device: torch.device) -> nn.Module:
    """The package's network of this name, with soft gates and random wiring."""
    from torchlogix.models import conv

    make = {"cifar10-s": conv.ClgnCifar10Small, "cifar10-m": conv.ClgnCifar10Medium}[name]
    levels, wiring = torch.tensor([0.25, 0.5, 0.75]), {"init_method": "random-unique"}
    net = make(levels, "fixed", {}, wiring, parametrization="raw").to(device)
    return torch.compile(net)


def stepper(net: nn.Module, name: str, device: torch.device, *, capture: bool) -> Step:
    """What makes a step; its images change with nothing, which costs the same."""
    cuda = device.type == "cuda"
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.001, weight_decay=0.002, fused=True, capturable=cuda)
    x = torch.rand(BATCH, *((3, 32, 32) if name.startswith("cifar10") else (1, 28, 28)), device=device)
    labels = torch.randint(10, (BATCH,), device=device)

    def step() -> None:
        loss = F.cross_entropy(net(x), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return captured(step) if cuda and capture else step


def measure(step: Step, seconds: float, device: torch.device) -> list[float]:
    """Sorted milliseconds per step."""
    step()
    times, end, burst = list[float](), time.perf_counter() + seconds, 20 if device.type == "cuda" else 1
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(burst):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start) / burst)
    return sorted(times)


def show_kernels(step: Step) -> None:
    """What the time of a step goes to."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in events[:14]:
        print(f"    {event.self_device_time_total / 1e3:8.4f} ms {event.count:4d} x {event.key[:100]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="cifar10-s,cifar10-m")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in args.sizes.split(","):
        ways: dict[str, tuple[bool, Callable[[], nn.Module]]] = {}
        for what, estimator in ESTIMATORS.items():
            ways[f"{what}, fused"] = True, partial(ours, name, estimator, device)
            if args.plain:
                ways[f"{what}, plain"] = False, partial(ours, name, estimator, device)
        if args.peer:
            ways["torchlogix 0.2.2, compiled, as called"] = True, partial(torchlogix, name, device)
        for way, (fused, make) in ways.items():
            dst.use_kernels(fused)
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            torch.manual_seed(0)
            step = stepper(make(), name, device, capture="as called" not in way)
            times = measure(step, args.seconds, device)
            peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
            print(f"{name} {way}: {times[len(times) // 2]:.4f} ms, peak {peak:.3f} GiB", flush=True)
            if args.profile:
                show_kernels(step)
            del step  # and what it holds, before the next is measured
            if not args.no_record:
                size = f"{name}, batch {BATCH}" + (f", peak {peak:.2f} GiB" if device.type == "cuda" else "")
                record("logic-conv", f"{way}, whole step", size, times, None, device)
    dst.use_kernels(True)


if __name__ == "__main__":
    main()
