"""A training step of `dst.nn.LogicNetwork` in a plain loop, of its layers one by one, and of torchlogix; beside them
the step of the laboratory's fleets.

    python benchmarks/logic_layer.py [--rounds 20] [--width 12000] [--data FOLDER] [--no-record]

The paper's CIFAR-10 network: 9,216 bits, 4 x 12,000 gates, batch 100, cross-entropy of the class sums, Adam. Candidates
take turns, so that all meet the same load. On CUDA steps are called one by one, as a user's loop does. Beside it the
time that the process itself spent, which does not see what others do to the machine (OMP_NUM_THREADS=1 keeps threads
from waiting in it). FOLDER has CIFAR-10, for the fleet.
"""

import argparse
import time
from itertools import pairwise

import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig
from recording import Step, captured, record
from torch import nn

import decoupled_st as dst

INPUTS, LAYERS, CLASSES, BATCH = 9216, 4, 10, 100
TAUS = {"tau_f": 0.1, "tau_b": 2.0}


def step_of(network: nn.Module, device: torch.device, bits: bool = False, capturable: bool = False) -> Step:
    """Forward, backward, Adam; inputs are bool where `bits`, else float."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, INPUTS, generator=generator).round().to(device)
    x = x.bool() if bits else x
    labels = torch.randint(CLASSES, (BATCH,), generator=generator).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, fused=True, capturable=capturable)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network(x), labels).backward()
        optimiser.step()

    return step


def modules(width: int, device: torch.device) -> list[nn.Module]:
    widths, estimator = [INPUTS, *[width] * LAYERS], dst.Decoupled(**TAUS)
    layers = [dst.nn.LogicLayer(a, b, estimator, device=device) for a, b in pairwise(widths)]
    return [*layers, dst.nn.GroupSum(CLASSES, tau=100 / 3)]


def fleet(width: int, device: torch.device, folder: str | None) -> Step | None:
    """The laboratory's step of one network, on CIFAR-10."""
    if folder is None:
        return None
    config = LogicGatesConfig(
        estimator=Choice.make("decoupled", **TAUS),
        dataset="cifar10",
        layers=LAYERS,
        width=width,
        batch=BATCH,
        group_tau=100 / 3,
        lr=0.01,
        steps=1_000_000,
        evaluate_every=1_000_000,
    )
    one = Fleet(LogicGates(config, folder, device), [config])
    one.optimiser.rule = type(one.optimiser.rule)()  # a constant rate: no table of a million steps
    return one.stepper()


def theirs(width: int, device: torch.device) -> Step | None:
    """torchlogix with straight-through Gumbel gates, where it imports."""
    try:
        from torchlogix.layers import GroupSum, LogicDense
    except (ImportError, SyntaxError):
        return None
    widths = [INPUTS, *[width] * LAYERS]
    options = {"parametrization_kwargs": {"forward_sampling": "gumbel_hard"}, "device": device.type}
    layers = [LogicDense(a, b, **options) for a, b in pairwise(widths)]
    return step_of(nn.Sequential(*layers, GroupSum(CLASSES, tau=100 / 3)).to(device), device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--width", type=int, default=12_000)
    parser.add_argument("--data", default=None)
    parser.add_argument("--no-record", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = dst.nn.LogicNetwork(*modules(args.width, device))
    steps = {
        "LogicNetwork": step_of(network, device),
        "LogicNetwork, inputs as bool": step_of(dst.nn.LogicNetwork(*modules(args.width, device)), device, bits=True),
        "LogicLayer, one by one": step_of(nn.Sequential(*modules(args.width, device)), device),
        "torchlogix gumbel_hard": theirs(args.width, device),
        "fleet, one run": fleet(args.width, device, args.data),
    }
    if device.type == "cuda":
        one = dst.nn.LogicNetwork(*modules(args.width, device))
        steps["LogicNetwork, captured"] = captured(step_of(one, device, bits=True, capturable=True))
    found: dict[str, list[float]] = {name: [] for name, step in steps.items() if step}
    spent: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(args.rounds + 2):
        for name, step in steps.items():
            if step is None:
                continue
            before, own = time.perf_counter(), time.process_time()
            for _ in range(10 if device.type == "cuda" else 1):
                step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn > 1:
                many = 10 if device.type == "cuda" else 1
                found[name].append(1e3 * (time.perf_counter() - before) / many)
                spent[name].append(1e3 * (time.process_time() - own) / many)
    size = f"{LAYERS} x {args.width:,}, batch {BATCH}"
    peer = sorted(found.get("torchlogix gumbel_hard", [float("nan")]))
    for name, times in found.items():
        times.sort()
        middle = times[len(times) // 2]
        print(f"{name:40} {middle:9.3f} ms, CPU time {sorted(spent[name])[len(times) // 2]:9.3f} ms", flush=True)
        if not args.no_record:
            ratio = peer[len(peer) // 2] / middle if len(peer) == len(times) and "torchlogix" not in name else None
            record("logic-layer", name, size, times, ratio, device)


if __name__ == "__main__":
    main()
