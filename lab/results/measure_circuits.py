"""What the networks of the study `circuits` come to as circuits: gates after simplification, and images per second.

    python -m results.measure_circuits --store runs.sqlite [--gates GATES.npz] [--data FOLDER] [--export FILE.json]

Networks are those that the store keeps (`dst sweep circuits-12k --scale paper --keep`), or those of GATES.npz, which
has by run the argmax gates [layers, width / 2], two to a byte, the first in the upper half: the wiring follows from the
run's seed. Every circuit must classify as many test images correctly as the run's record says. Writes `circuits.csv`
next to the records as it goes; times are CPU time of one thread.
"""

import argparse
import csv
import hashlib
import time
from pathlib import Path

import numpy as np
import torch
from dst_lab import data, networks
from dst_lab.cli.commands.circuit import input_names
from dst_lab.store import Run, Store
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig, wiring_of

import decoupled_st as dst
from decoupled_st.circuits import Circuit, from_network

AT_ONCE = 1024
"""Images per call."""


def from_gates(run: Run, gates: np.ndarray, digest: np.ndarray, bits: int) -> torch.nn.Module:
    """The network of a run from its gates."""
    config = LogicGatesConfig.from_dict(run.config)
    wiring = wiring_of(config, bits, config.seed)
    parts = b"".join(tensor.numpy().tobytes() for tensor in wiring.values())
    if hashlib.sha256(parts).digest() != digest.tobytes():
        raise ValueError(f"the wiring of run {run.id} is not the one that was trained")
    chosen = torch.from_numpy(np.stack([gates >> 4, gates & 15], -1).reshape(len(gates), -1)).long()
    logits = {f"logits.{i}": torch.nn.functional.one_hot(layer, 16).float() for i, layer in enumerate(chosen)}
    sizes = {"classes": torch.tensor(10), "bits": torch.tensor(bits)}
    estimator = dst.Decoupled(tau_f=0.0, tau_b=1.0)
    return LogicGates.network(config, {**wiring, **logits, **sizes}, estimator, deterministic=True).eval()


def measure(run: Run, circuit: Circuit, test: data.Split) -> tuple[dict[str, object], Circuit]:
    """Simplified, compiled, run on every test image, and timed."""
    began = time.process_time()
    small = circuit.simplify()
    simplified = time.process_time() - began
    fast = small.compile(threads=1, strict=True)
    correct, spent = 0, 0.0
    for start in range(0, len(test), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        bits = torch.from_numpy(data.bits(test.images[part], run.config["thresholds"]))
        began = time.process_time()
        scores = fast(bits)
        spent += time.process_time() - began
        correct += int((scores.argmax(-1) == torch.from_numpy(test.labels[part])).sum())
    return {
        "run": run.id,
        "gates": len(circuit.gates),
        "simplified": len(small.gates),
        "depth": small.depth,
        "correct": correct,
        "simplify_s": round(simplified, 2),
        "compile_s": round(fast.seconds, 2),
        "images_per_s": round(len(test) / spent),
        "device": "x86_64, CPU time of one thread",
    }, small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--gates", type=Path)
    parser.add_argument("--data", default=None)
    parser.add_argument("--export", type=Path, help="the first run's simplified circuit")
    args = parser.parse_args()
    gates = dict(np.load(args.gates)) if args.gates else {}
    done: list[dict[str, object]] = []
    with Store.open(args.store) as store:
        kept = store.kept()
        for run in sorted(store.runs(), key=lambda run: (run.config["layers"] * run.config["width"], run.seed)):
            if run.id not in gates and run.id not in kept:
                continue
            test = data.load_levels(run.config["dataset"], run.config["thresholds"], args.data).test
            names = input_names(run.config["thresholds"], test.images.shape[1:])
            if run.id in kept:
                network = networks.load(store, run.id)
            else:
                network = from_gates(run, gates[run.id], gates[f"{run.id}-wiring"], len(names))
            one, circuit = measure(run, from_network(network, input_names=names), test)
            recorded = float(store.history(run.id)["test_accuracy_argmax"].values[-1])
            print(one, f"recorded {recorded:.4f}", flush=True)
            if one["correct"] != round(len(test) * recorded):
                raise ValueError(f"the circuit of run {run.id} classifies {one['correct']} images, the run not as many")
            if args.export and not done:
                circuit.write(args.export)
            done.append(one)
            with open(
                (args.store if args.store.is_dir() else args.store.parent) / "circuits.csv", "w", newline=""
            ) as file:
                writer = csv.DictWriter(file, list(one), lineterminator="\n")
                writer.writeheader()
                writer.writerows(done)


if __name__ == "__main__":
    main()
