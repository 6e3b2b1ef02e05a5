"""Train a convolutional network that teaches logic networks, and save it.

    python teacher.py --data DIR --out FILE [--dataset cifar10] [--held-out 10000] [--epochs 30]

It learns from the images that a logic network of the same data set and held-out images learns from. It is a residual
network of nine layers in bfloat16, by SGD with Nesterov's momentum, a rate that rises and falls once, mirror images
and crops.
"""

import argparse
import time
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from images import DEVICE, augmented, split_of
from torch import Tensor, nn


def block(channels_in: int, channels: int, pool: bool = False) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)
    layers = [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class Residual(nn.Sequential):
    """x + f(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Teacher(nn.Module):
    """Images [images, channels, h, w] of uint8 to class scores [images, 10]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            block(channels, 64),
            block(64, 128, pool=True),
            Residual(block(128, 128), block(128, 128)),
            block(128, 256, pool=True),
            block(256, 512, pool=True),
            Residual(block(512, 512), block(512, 512)),
        )
        self.head = nn.Linear(512, 10, bias=False)
        self.to(DEVICE, memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        x = ((images.float() - 128) / 64).contiguous(memory_format=torch.channels_last)
        # No cache of casted weights: a CUDA graph that is captured would keep a pointer to it.
        with torch.autocast(DEVICE.type, torch.bfloat16, cache_enabled=False):
            features = self.features(x).amax((2, 3))
        return self.head(features.float()) / 8


def train(x: Tensor, y: Tensor, epochs: int, batch: int, seed: int) -> Teacher:
    torch.manual_seed(seed)
    generator = torch.Generator(DEVICE).manual_seed(seed)
    teacher = Teacher(x.shape[1])
    optimiser = torch.optim.SGD(teacher.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = epochs * (len(x) // batch)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 0.4, total_steps=steps, pct_start=0.2, anneal_strategy="linear", cycle_momentum=False
    )
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator, device=DEVICE)
        for index in order[: len(x) // batch * batch].split(batch):
            loss = F.cross_entropy(teacher(augmented(x[index], 2, generator)), y[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
    return teacher.eval()


@torch.no_grad()
def accuracy(teacher: Teacher, x: Tensor, y: Tensor) -> float:
    right = [(teacher(a).argmax(-1) == b).sum() for a, b in zip(x.split(1000), y.split(1000), strict=True)]
    return int(torch.stack(right).sum()) / len(y)


@cache
def load(file: Path, dataset: str, held_out: int) -> Teacher:
    """A saved teacher, fixed; an error if it has learned from other images than those of this data set."""
    saved = torch.load(file, map_location=DEVICE)
    learned = saved["dataset"], saved["held_out"]
    if learned != (dataset, held_out):
        raise ValueError(f"{file} has learned from {learned}, not from {(dataset, held_out)}: dataset, held_out")
    teacher = Teacher(saved["channels"])
    teacher.load_state_dict(saved["state"])
    return teacher.eval().requires_grad_(False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--held-out", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.backends.cudnn.benchmark = True
    x, y, *held = split_of(given.dataset, given.data, given.held_out)
    started = time.time()
    teacher = train(x, y, given.epochs, given.batch, given.seed)
    # With -whole the held-out images are the test images, which no choice is made by.
    measured = "" if given.dataset.endswith("-whole") else f"{accuracy(teacher, *held):.2%} of held-out images, "
    print(f"{measured}{time.time() - started:.0f} s", flush=True)
    made = {"dataset": given.dataset, "held_out": given.held_out, "channels": x.shape[1]}
    torch.save(made | {"state": teacher.state_dict()}, given.out)


if __name__ == "__main__":
    main()
