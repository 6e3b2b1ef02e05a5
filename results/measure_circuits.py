"""What the networks of the study `circuits` come to as circuits: gates after simplification, and images per second.

    python -m results.measure_circuits GATES.npz --store results/circuits [--data FOLDER] [--export FILE.aig]

GATES.npz has, by run, the argmax gates [layers, width / 2] of its network, two to a byte, the first in the upper half:
the wiring follows from the run's seed. Every circuit must classify as many test images correctly as the run's record
says. Writes `circuits.csv` beside the records as it goes; times are CPU time of one thread.
"""

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np
import torch

import decoupled_st as dst
from decoupled_st.circuits import from_network
from dst_lab import data
from dst_lab.configs import LogicGatesConfig
from dst_lab.store import Run, Store
from dst_lab.studies.circuits.measured import NAME, Measured, write
from dst_lab.tasks import LogicGates
from dst_lab.tasks.logic_gates import wiring_of

AT_ONCE = 1024
"""Images per call."""


def network_of(
    run: Run, gates: np.ndarray, digest: np.ndarray, values: int
) -> tuple[LogicGatesConfig, torch.nn.Module]:
    """The network of a run from its gates."""
    config = LogicGatesConfig.from_dict(run.config)
    wiring = wiring_of(config, config.thresholds * values, config.seed)
    parts = b"".join(tensor.numpy().tobytes() for tensor in wiring.values())
    if hashlib.sha256(parts).digest() != digest.tobytes():
        raise ValueError(f"the wiring of run {run.id} is not the one that was trained")
    chosen = torch.from_numpy(np.stack([gates >> 4, gates & 15], -1).reshape(len(gates), -1)).long()
    logits = {f"logits.{i}": torch.nn.functional.one_hot(layer, 16).float() for i, layer in enumerate(chosen)}
    sizes = {"classes": torch.tensor(10), "bits": torch.tensor(config.thresholds * values)}
    estimator = dst.Decoupled(tau_f=0.0, tau_b=1.0)
    return config, LogicGates.network(config, {**wiring, **logits, **sizes}, estimator, deterministic=True).eval()


def measure(
    run: Run, config: LogicGatesConfig, network: torch.nn.Module, source: str | None
) -> tuple[Measured, dst.circuits.Circuit]:
    """Simplified, compiled, run on every test image, and timed."""
    test = data.load_levels(config.dataset, config.thresholds, source).test
    circuit = from_network(network)
    began = time.process_time()
    small = circuit.simplify()
    simplified = time.process_time() - began
    fast = small.compile(threads=1, strict=True)
    correct, spent = 0, 0.0
    for start in range(0, len(test.labels), AT_ONCE):
        bits = torch.from_numpy(data.bits(test.levels[start : start + AT_ONCE], config.thresholds))
        began = time.process_time()
        scores = fast(bits)
        spent += time.process_time() - began
        correct += int((scores.argmax(-1) == torch.from_numpy(test.labels[start : start + AT_ONCE])).sum())
    return Measured(
        run=run.id, gates=len(circuit.gates), simplified=len(small.gates), depth=small.depth, correct=correct,
        simplify_s=round(simplified, 2), compile_s=round(fast.seconds, 2),
        images_per_s=round(len(test.labels) / spent), device="x86_64, CPU time of one thread",
    ), small  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gates", type=Path)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data", default=None)
    parser.add_argument("--export", type=Path, help="the first run's simplified circuit")
    args = parser.parse_args()
    found = np.load(args.gates)
    done: list[Measured] = []
    with Store.open(args.store) as store:
        for run in sorted(store.runs(), key=lambda run: (run.config["layers"] * run.config["width"], run.seed)):
            if run.id not in found.files:
                continue
            values = 3072 if run.config["dataset"].startswith("cifar10") else 64
            config, network = network_of(run, found[run.id], found[f"{run.id}-wiring"], values)
            one, circuit = measure(run, config, network, args.data)
            recorded = float(store.history(run.id)["test_accuracy_argmax"].values[-1])
            print(one, f"recorded {recorded:.4f}", flush=True)
            tests = len(data.load_levels(config.dataset, config.thresholds, args.data).test.labels)
            if one.correct != round(tests * recorded):
                raise ValueError(
                    f"the circuit of run {run.id} classifies {one.correct} images correctly, the run more or fewer"
                )
            if args.export and not done:
                circuit.write(args.export)
            done.append(one)
            write((args.store if args.store.is_dir() else args.store.parent) / NAME, done)


if __name__ == "__main__":
    main()
