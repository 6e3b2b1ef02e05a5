"""A data set's images on the device that trains, and their augmentation there.

Of each byte the first five bits are kept: the paper's inputs have five, and the thresholds give the same bits.
"""

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from dst_lab.data import Split, load
from torch import Tensor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FIVE_BITS = 0b11111000


@cache
def images_of(dataset: str, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Images [images, channels, h, w] of uint8 and labels, by split."""

    def on_device(split: Split) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(split.images & FIVE_BITS).to(DEVICE), torch.from_numpy(split.labels).to(DEVICE)

    return {name: on_device(split) for name, split in load(dataset, folder).splits.items()}


def split_of(dataset: str, folder: Path, held_out: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, and to validate on; these are the last `held_out`, 0 for as many as the lab's."""
    parts = images_of(dataset, folder)
    (x, y), (held_x, held_y) = parts["train"], parts["validation"]
    cut = len(x) - max(0, held_out - len(held_x))
    return x[:cut], y[:cut], torch.cat([x[cut:], held_x]), torch.cat([y[cut:], held_y])


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


def thresholds_of(thresholds: int, edges: int) -> tuple[list[float], list[float]]:
    """Thresholds of bytes, evenly over 0 to 255, and of their derivatives, evenly over 0 to 51 and to -51."""
    values = [255 * k / (thresholds + 1) for k in range(1, thresholds + 1)]
    sides = [51 * k / (edges + 1) for k in range(1, edges + 1)]
    return values, [*(-t for t in reversed(sides)), *sides]
