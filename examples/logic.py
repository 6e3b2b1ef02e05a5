"""A logic network on scikit-learn's digits, and its circuit as C and Verilog.

    python examples/logic.py [FOLDER]

Images become 192 bits. Two layers of 640 gates are trained in a plain loop, then fixed to their likeliest gates,
simplified, checked against the network on the test images, and written to FOLDER (here). Seconds on one CPU core.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import decoupled_st as dst

WIDTH, CLASSES, BATCH, STEPS = 640, 10, 100, 300
TRAIN = 1500


def read_digits() -> tuple[Tensor, Tensor]:
    """Bits [images, 192], three thresholds per pixel, and labels."""
    pixels, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    return torch.cat([pixels > level for level in (4, 8, 12)], 1), labels


def make_network(inputs: int) -> dst.nn.LogicNetwork:
    estimator = dst.Decoupled(tau_f=0.1, tau_b=2.0)
    return dst.nn.LogicNetwork(
        dst.nn.LogicLayer(inputs, WIDTH, estimator, wiring="random"),
        dst.nn.LogicLayer(WIDTH, WIDTH, estimator),
        dst.nn.GroupSum(CLASSES, tau=8.0),
    )


def train(network: nn.Module, bits: Tensor, labels: Tensor) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(STEPS):
        batch = torch.randint(len(bits), (BATCH,))
        loss = nn.functional.cross_entropy(network(bits[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # layers this small gain nothing by more
    bits, labels = read_digits()
    network = make_network(bits.shape[1])
    train(network, bits[:TRAIN], labels[:TRAIN])
    whole = dst.circuits.from_network(network.eval())
    circuit = whole.simplify()
    with torch.no_grad():
        scores = network(bits[TRAIN:])
    assert torch.equal(circuit(bits[TRAIN:]), scores), "the circuit gives the network's scores"
    right = (scores.argmax(-1) == labels[TRAIN:]).double().mean().item()
    print(f"{right:.1%} of {len(scores)} test images; {len(whole.gates):,} gates, {len(circuit.gates):,} simplified")
    for name in ("digits.c", "digits.v"):
        circuit.write(folder / name)
        print(f"written: {folder / name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="where the circuit is written (here)")
    main(parser.parse_args().folder)
