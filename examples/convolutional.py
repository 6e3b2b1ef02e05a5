"""A convolutional logic network on images, and its circuit as C and Verilog.

    python examples/convolutional.py [--data FOLDER] [--steps 600] [--out FOLDER]

Without --data, scikit-learn's digits of 8 x 8 pixels and a small network: half a minute on one CPU core. With a folder
of Fashion-MNIST's (or MNIST's) four files, train-images-idx3-ubyte.gz and so on, the published network "mnist-s".
Gates are soft mixtures for three quarters of the steps, then each gate is its argmax: the circuit loses nothing.
"""

import argparse
import gzip
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst

SOFT, HARD = dst.Soft(tau=1.0), dst.Decoupled(tau_f=0.0, tau_b=1.0)
LEVELS = [0.25, 0.5, 0.75]


def read_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images [n, 1, 8, 8] between 0 and 1 and labels, for training and for the test."""
    from sklearn.datasets import load_digits

    pixels, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = pixels.float().reshape(-1, 1, 8, 8) / 17
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def read_files(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def read(name: str, skip: int) -> Tensor:
        return torch.frombuffer(
            bytearray(gzip.decompress((folder / f"{name}.gz").read_bytes())[skip:]), dtype=torch.uint8
        )

    parts = []
    for split in ("train", "t10k"):
        images = read(f"{split}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28) / 255
        parts += [images, read(f"{split}-labels-idx1-ubyte", 8).long()]
    return tuple(parts)  # type: ignore[return-value]


def small_network() -> dst.nn.LogicTreeNetwork:
    return dst.nn.LogicTreeNetwork(
        dst.nn.Thermometer(LEVELS),
        dst.nn.LogicConv2d(3, 32, SOFT),
        dst.nn.OrPool2d(),
        dst.nn.LogicConv2d(32, 96, SOFT),
        dst.nn.OrPool2d(),
        nn.Flatten(),
        dst.nn.LogicTrees(96 * 4, 1920, SOFT),
        dst.nn.GroupSum(10, tau=4.0),
    )


def train(network: dst.nn.LogicTreeNetwork, images: Tensor, labels: Tensor, steps: int) -> None:
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.05, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        if step == steps * 3 // 4:
            network.estimator = HARD
        batch = torch.randint(len(images), (128,))
        loss = F.cross_entropy(network(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    torch.manual_seed(0)
    images, labels, test_images, test_labels = read_files(given.data) if given.data else read_digits()
    network = dst.nn.logic_tree_net("mnist-s", SOFT, thresholds=LEVELS) if given.data else small_network()
    train(network, images, labels, given.steps)
    whole = dst.circuits.from_network(network.eval(), image_size=(images.shape[2], images.shape[3]))
    circuit = whole.simplify()
    with torch.no_grad():
        scores = torch.cat([network(part) for part in test_images.split(500)])
    bits = network[0](test_images).flatten(1)
    assert torch.equal(circuit(bits), scores), "the circuit gives the network's scores"
    right = (scores.argmax(-1) == test_labels).double().mean().item()
    print(f"{right:.1%} of {len(scores)} test images; {len(whole.gates):,} gates, {len(circuit.gates):,} simplified")
    for name in ("images.c", "images.v"):
        circuit.write(given.out / name)
        print(f"written: {given.out / name}")
    dst.circuits.LoopedCircuit(network, images.shape[2:]).write(given.out / "stream.v", testbench=True)
    print(f"written: {given.out / 'stream.v'}, a pixel per clock")


if __name__ == "__main__":
    main()
