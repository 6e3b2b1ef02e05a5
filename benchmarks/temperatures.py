"""What a rule for temperatures costs: a training step with `SelfTempered` against the same step with constants.

    python benchmarks/temperatures.py [--device cuda --data DIR] [--repeats 60] [--no-record]

Steps of one network as modules, as called, and on CUDA captured too; and of fleets on CUDA, captured as they are
trained. Medians of alternating repeats; the share is the median of each repeat's own. Rows are appended to
benchmarks/results.csv.
"""

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.runs import Config
from dst_lab.tasks import TASKS
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from recording import Step, captured, record
from torch import nn

import decoupled_st as dst
from decoupled_st.temperatures.rule import Tempering

RULED = {
    "constants": lambda: dst.Decoupled(tau_f=0.1, tau_b=0.5),
    "SelfTempered()": lambda: dst.SelfTempered(steps=None),
    "SelfTempered(steps)": lambda: dst.SelfTempered(steps=40_000),
}
FLEETS = {"constants": (0.1, 0.5), "SelfTempered()": ("self:steps=0",) * 2, "SelfTempered(steps)": ("self",) * 2}
LOGIC = 4_000
"""Gates of a layer."""


def autoencoder(estimator: dst.Estimator) -> tuple[nn.Module, tuple[int, ...]]:
    """784-512-256-(4 x 8) and mirrored; the network, and the shape of its input."""
    encoder = [layer for a, b in pairwise((784, 512, 256)) for layer in (nn.Linear(a, b), nn.ReLU())]
    code = [nn.Linear(256, 32), nn.Unflatten(1, (4, 8)), dst.nn.Categorical(estimator), nn.Flatten()]
    decoder = [layer for a, b in pairwise((32, 256, 512)) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*encoder, *code, *decoder, nn.Linear(512, 784)), (200, 784)


def network(estimator: dst.Estimator) -> tuple[nn.Module, tuple[int, ...]]:
    """784-200-200-10 with binary neurons."""
    layers = [layer for a, b in pairwise((784, 200, 200)) for layer in (nn.Linear(a, b), dst.nn.Binary(estimator))]
    return nn.Sequential(*layers, nn.Linear(200, 10)), (128, 784)


def gates(estimator: dst.Estimator) -> tuple[nn.Module, tuple[int, ...]]:
    """Three layers of logic gates and ten classes."""
    layers = [dst.nn.LogicLayer(a, LOGIC, estimator) for a in (784, LOGIC, LOGIC)]
    return nn.Sequential(*layers, dst.nn.GroupSum(10, tau=30.0)), (100, 784)


MODULES: dict[str, Callable[[dst.Estimator], tuple[nn.Module, tuple[int, ...]]]] = {
    "categorical autoencoder": autoencoder,
    "binary network": network,
    "logic gates": gates,
}


def module_step(name: str, estimator: dst.Estimator, device: torch.device) -> Step:
    """Forward, backward and Adam of one network on random images."""
    one, shape = MODULES[name](estimator)
    one = one.to(device)
    x = torch.rand(shape, device=device)
    x = x.round() if name == "logic gates" else x
    labels = torch.randint(10, shape[:1], device=device)
    optimiser = torch.optim.Adam(one.parameters(), lr=1e-3, capturable=device.type == "cuda")

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        y = one(x)
        pixels = y.shape == x.shape
        loss = F.binary_cross_entropy_with_logits(y, x) if pixels else F.cross_entropy(y, labels)
        loss.backward()
        optimiser.step()

    return step


def fleet_step(config_type: type[Config], tau_f: object, tau_b: object, runs: int, data: str | None) -> Step:
    """The step of a fleet at the paper's scale, as it is trained on CUDA."""
    fields = config_type.paper() if data else {}
    choice = Choice.make("decoupled", tau_f=tau_f, tau_b=tau_b)
    configs = [config_type(**fields, estimator=choice, seed=seed) for seed in range(runs)]
    fleet = Fleet(TASKS[configs[0].task](configs[0], data, torch.device("cuda")), configs)
    advance = fleet.stepper()
    return lambda: (advance(), None)[1]


def measure(name: str, size: str, steps: dict[str, Step], device: torch.device, args: argparse.Namespace) -> None:
    """Milliseconds of every step, alternately, and how much longer those with the rule take."""
    times: dict[str, list[float]] = {what: [] for what in steps}
    for repeat in range(args.repeats + 3):
        for what, step in steps.items():
            milliseconds = timed(step, device, args.steps)
            if repeat >= 3:  # the first ones warm up
                times[what].append(milliseconds)
    # The share is that of each repeat beside the constants' next to it: a machine that slows down slows both.
    constants = times["constants"]
    for what, of_rule in times.items():
        pairs = sorted(a / b - 1 for a, b in zip(of_rule, constants, strict=True))
        low, middle, high = (100 * pairs[int(q * (len(pairs) - 1))] for q in (0.25, 0.5, 0.75))
        share = "" if what == "constants" else f"{middle:+.1f}% ({low:+.1f} to {high:+.1f})"
        print(f"{name} | {size} | {what} | {sorted(of_rule)[len(of_rule) // 2]:.4f} ms {share}", flush=True)
        if not args.no_record:
            ratio = None if what == "constants" else 1 / (1 + middle / 100)
            record(f"rule, {name}", what, size, sorted(of_rule), ratio, device)


def own_share(name: str, what: str, args: argparse.Namespace) -> None:
    """The share of a step's time on the CPU that the rule itself takes, mean and quartiles over repeats: on a busy
    machine it says more than the difference of two long times."""
    spent = [0.0]

    def timed(ours: Any) -> Any:
        def call(*positional: Any, **options: Any) -> Any:
            started = time.thread_time()
            result = ours(*positional, **options)
            spent[0] += time.thread_time() - started
            return result

        return call

    step = module_step(name, RULED[what](), torch.device("cpu"))
    shares = []
    taus, count = timed(Tempering.taus), timed(Tempering._count)
    with patch.object(Tempering, "taus", taus), patch.object(Tempering, "_count", count):
        for repeat in range(args.repeats + 30):
            spent[0], started = 0.0, time.thread_time()
            for _ in range(args.steps):
                step()
            if repeat >= 30:  # every pass is measured up to the fiftieth
                shares.append(100 * spent[0] / (time.thread_time() - started))
    low, high = (sorted(shares)[int(q * (len(shares) - 1))] for q in (0.25, 0.75))
    print(f"{name} | {what} | its own share {sum(shares) / len(shares):.2f}% ({low:.2f} to {high:.2f})", flush=True)


def timed(step: Step, device: torch.device, steps: int) -> float:
    """Milliseconds per step; on a CPU those of this process, which others on the machine disturb less."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = clock()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (clock() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--steps", type=int, default=10, help="of one repeat")
    parser.add_argument("--data", help="folder with the data sets, for fleets at the paper's scale")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 50], help="of a fleet")
    parser.add_argument("--no-record", action="store_true", help="print, and write nothing")
    args = parser.parse_args()
    device = torch.device(args.device)
    for name in MODULES:
        steps = {what: module_step(name, make(), device) for what, make in RULED.items()}
        measure(name, "one network, as called", steps, device, args)
        if device.type == "cpu":
            for what in list(RULED)[1:]:
                own_share(name, what, args)
        else:
            replayed = {what: captured(step) for what, step in steps.items()}
            measure(name, "one network, captured", replayed, device, args)
    torch.set_float32_matmul_precision("high")
    for config_type in (CategoricalAutoencoderConfig, StochasticBinaryConfig) if device.type == "cuda" else ():
        for runs in args.runs:
            steps = {what: fleet_step(config_type, *both, runs, args.data) for what, both in FLEETS.items()}
            measure(config_type.task, f"fleet of {runs}, captured", steps, device, args)


if __name__ == "__main__":
    main()
