"""Train convolutional logic networks on one GPU, several at once, and append what they reach to a table.

    python train.py --data DIR --out runs.csv SPEC [SPEC ..]      a SPEC is KEY=VALUE,KEY=VALUE,.. with fields of `Run`
Each run is a CUDA graph of its whole step on a stream of its own. Images lie on the GPU as 0 to 3, how many of the
thresholds 0.25, 0.5 and 0.75 a value exceeds; crops and mirror images are made there.
"""

import argparse
import csv
import lzma
import math
import time
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import decoupled_st as dst

SHAPES = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28)}
QUIET = ("batch", "thresholds", "device", "torch")
HELD_OUT = {"cifar10": 5_000, "mnist": 10_000, "fashion-mnist": 10_000}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training.

    Attributes:
        net, data: which; MNIST's sizes also train on Fashion-MNIST.
        gates: "soft" mixtures; "argmax", Decoupled ST with tau_f 0; "drawn", with tau_f 0.1.
        tau_b: of the gradient; of soft gates their one temperature.
        thresholds: 3, or 1 at 0.5.
        anneal: the last share of the steps that goes by argmax after a soft start; 0 none.
        augment: 0 none, 1 mirror images, 2 mirror images and crops of the image padded by 4 (MNIST: shifts by 2).
        test: 1 evaluates the test images, once, at the end.
    """

    net: str = "cifar10-s"
    data: str = "cifar10"
    gates: str = "soft"
    tau_b: float = 1.0
    wiring: str = "structured"
    thresholds: int = 3
    steps: int = 10_000
    batch: int = 128
    lr: float = 0.02
    decay: float = 0.002
    tau: float = 0.0
    anneal: float = 0.0
    augment: int = 2
    seed: int = 0
    test: int = 0


def read(folder: Path, data: str, split: str) -> tuple[Tensor, Tensor]:
    """Levels [images, channels, h, w] of uint8 and labels, as `levels.py` wrote them."""
    parts = sorted(folder.glob(f"{data}.{split}*.x.xz"))
    images = []
    for part in parts:
        raw = torch.frombuffer(bytearray(lzma.decompress(part.read_bytes())), dtype=torch.uint8).reshape(2, -1, 1)
        bits = (raw >> torch.arange(7, -1, -1, dtype=torch.uint8)) & 1
        high, gray = bits.flatten(1)
        images.append((2 * high + (high ^ gray)).reshape(-1, *SHAPES[data]))
    labels = b"".join(part.with_name(part.name.replace(".x.xz", ".y")).read_bytes() for part in parts)
    return torch.cat(images).cuda(), torch.frombuffer(bytearray(labels), dtype=torch.uint8).long().cuda()


def estimator(run: Run) -> dst.Estimator:
    if run.gates == "soft":
        return dst.Soft(tau=run.tau_b)
    return dst.Decoupled(tau_f={"argmax": 0.0, "drawn": 0.1}[run.gates], tau_b=run.tau_b)


def augmented(x: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Mirror images and crops, each image its own."""
    images, _, height, width = x.shape
    draw = lambda most: torch.randint(most, (images, 1, 1), generator=generator, device=x.device)  # noqa: E731
    rows, columns = (torch.arange(size, device=x.device) for size in (height, width))
    margin = (4 if height == 32 else 2) if level == 2 else 0
    row = rows[None, :, None] + draw(2 * margin + 1)
    column = columns[None, None, :] + draw(2 * margin + 1)
    if height == 32:  # digits and clothes have a left and a right
        column = torch.where(draw(2) == 1, width - 1 + 2 * margin - column, column)
    padded = F.pad(x, (margin,) * 4)
    image = torch.arange(images, device=x.device)[:, None, None]
    return padded[image, :, row, column].permute(0, 3, 1, 2)


class Training:
    """A network, its optimiser and its step as a CUDA graph."""

    def __init__(self, run: Run, images: Tensor, labels: Tensor) -> None:
        self.run, self.stream = run, torch.cuda.Stream()
        self.generator = torch.Generator("cuda").manual_seed(run.seed)
        cpu = torch.Generator().manual_seed(run.seed)
        levels = [0.5, 1.5, 2.5] if run.thresholds == 3 else [1.5]
        self.net = dst.nn.logic_tree_net(
            run.net, estimator(run), thresholds=levels, wiring=run.wiring, generator=cpu, device="cuda"
        )
        if run.tau:
            self.net[-1].tau = run.tau
        self.lr = torch.tensor(run.lr, device="cuda")
        self.count = torch.zeros((), device="cuda")
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(), lr=self.lr, weight_decay=run.decay, fused=True, capturable=True
        )
        self.images, self.labels = images, labels
        self.done = 0
        self.graph = self.capture()

    def step(self) -> None:
        run = self.run
        self.count += 1
        self.lr.copy_(run.lr * 0.5 * (1 + torch.cos(math.pi * self.count / run.steps)))
        index = torch.randint(len(self.images), (run.batch,), generator=self.generator, device="cuda")
        x = self.images[index]
        x = augmented(x, run.augment, self.generator) if run.augment else x
        loss = F.cross_entropy(self.net(x), self.labels[index])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def capture(self) -> torch.cuda.CUDAGraph:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
                self.done += 1
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        return graph

    def train(self, steps: int) -> None:
        """Enqueue some steps; the rest after a soft start goes by argmax."""
        with torch.cuda.stream(self.stream):
            for _ in range(min(steps, self.run.steps - self.done)):
                self.graph.replay()
                self.done += 1
        is_soft, end = self.net.estimator == estimator(self.run), self.run.steps * (1 - self.run.anneal)
        if self.run.anneal and is_soft and self.done >= end:
            torch.cuda.synchronize()
            self.net.estimator = dst.Decoupled(tau_f=0.0, tau_b=self.run.tau_b)
            self.graph = self.capture()


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    right = sum((net(x).argmax(-1) == y).sum() for x, y in zip(images.split(2_000), labels.split(2_000), strict=True))
    return float(right) / len(labels)


def train_all(runs: list[Run], folder: Path) -> list[dict[str, object]]:
    data = runs[0].data
    images, labels = read(folder, data, "train")
    held = HELD_OUT[data]
    trainings = [Training(run, images[:-held], labels[:-held]) for run in runs]
    torch.cuda.synchronize()
    started = time.perf_counter()
    while any(t.done < t.run.steps for t in trainings):
        for training in trainings:
            training.train(100)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    rows = []
    test = read(folder, data, "test")
    for training in trainings:
        row: dict[str, object] = {field.name: getattr(training.run, field.name) for field in fields(Run)}
        row["validation"] = accuracy(training.net.eval(), images[-held:], labels[-held:])
        if training.run.gates == "soft":
            row["relaxed"] = accuracy(training.net.train(), images[-held:], labels[-held:])
        if training.run.test:
            row["test_accuracy"] = accuracy(training.net.eval(), *test)
        row |= {"seconds": round(seconds, 1), "at_once": len(runs)}
        row |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        rows.append(row)
        print({key: value for key, value in row.items() if key not in QUIET}, flush=True)
    return rows


def parse(spec: str) -> Run:
    kinds = {field.name: field.type for field in fields(Run)}
    values = dict(part.split("=") for part in spec.split(","))
    return Run(**{key: {str: str, int: int, float: float}[kinds[key]](value) for key, value in values.items()})  # type: ignore


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("runs", nargs="+")
    given = parser.parse_args()
    write(given.out, train_all([parse(spec) for spec in given.runs], given.data))


def write(path: Path, rows: list[dict[str, object]]) -> None:
    names = [field.name for field in fields(Run)]
    names += ["validation", "relaxed", "test_accuracy", "seconds", "at_once", "device", "torch"]
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, names)
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
