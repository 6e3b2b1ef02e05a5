"""Step time and memory of logic networks against their number of gates, on one GPU, with the floor beside them.

    python benchmarks/logic_scale.py [--data FOLDER] [--seconds 1.0] [--sizes 12k,1m] [--dataset cifar10] [--no-record]

The sizes are those that Petersen et al. (2022) trained on CIFAR-10. A step is the laboratory's packed step, replayed as
a graph: batch 100, Adam. The floor is the traffic that nothing can save at 4.3 TB/s: logits and both moments read and
written once, and the gradient of each layer below the last two written once and read by both readers of a neuron.
"""

import argparse
import time

import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig
from recording import record
from studies.circuits.recipes import CONSTANTS, RESIDUAL, SELF, SIZES, Size

BANDWIDTH = 4.3e9
"""Bytes per millisecond that an H200 copies."""
BATCH, IMAGES = 100, 104


def floor(size: Size) -> float:
    """Milliseconds of a step."""
    states = 6 * 4 * 16 * size.gates
    gradients = 4 * IMAGES * size.width * (3 * max(size.layers - 2, 0))
    return (states + gradients) / BANDWIDTH


def config_of(size: Size, choice: Choice, dataset: str) -> LogicGatesConfig:
    return LogicGatesConfig(
        estimator=choice,
        dataset=dataset,
        layers=size.layers,
        width=size.width,
        thresholds=size.thresholds,
        batch=BATCH,
        group_tau=size.group_tau,
        residual=RESIDUAL,
        steps=1_000_000,
        evaluate_every=1_000_000,
        lr=0.01,
    )


def measure(size: Size, choice: Choice, args: argparse.Namespace) -> tuple[list[float], float, float, str]:
    """Sorted milliseconds per step, GiB at the peak, seconds to begin, and the path."""
    began = time.perf_counter()
    if args.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    config = config_of(size, choice, args.dataset)
    fleet = Fleet(LogicGates(config, args.data, args.device), [config])
    fleet.optimiser.rule = type(fleet.optimiser.rule)()  # a constant rate: no table of a million steps
    step = fleet.stepper()
    step()
    fleet.synchronise()
    ready = time.perf_counter() - began
    times, end, burst = [], time.perf_counter() + args.seconds, 20 if args.device.type == "cuda" else 1
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(burst):
            step()
        fleet.synchronise()
        times.append(1e3 * (time.perf_counter() - start) / burst)
    peak = torch.cuda.max_memory_allocated() / 2**30 if args.device.type == "cuda" else float("nan")
    return sorted(times), peak, ready, fleet.path["path"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=None)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-record", action="store_true")
    args = parser.parse_args()
    args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print("size  temperatures     ms per step   floor  times   GiB  begun in  path", flush=True)
    for name in args.sizes.split(","):
        size = SIZES[name]
        for what, choice in (("constant", CONSTANTS), ("self-set", SELF)):
            times, peak, ready, path = measure(size, choice, args)
            middle, least = times[len(times) // 2], floor(size)
            numbers = f"{middle:12.4f} {least:8.4f} {middle / least:6.2f} {peak:6.2f} {ready:7.1f} s"
            print(f"{name:5} {what:14} {numbers}  {path}", flush=True)
            if not args.no_record:
                shape = f"{size.layers} x {size.width:,}, {size.thresholds} thresholds, batch {BATCH}"
                record("logic-scale", f"{what} temperatures, peak {peak:.2f} GiB", shape, times, None, args.device)
                record("logic-scale", "floor at 4.3 TB/s", shape, [least], None, args.device)


if __name__ == "__main__":
    main()
