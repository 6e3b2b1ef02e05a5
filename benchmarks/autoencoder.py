"""The autoencoder of the tokenisers that are compared on CIFAR-10: network, training, measures.

    image -> conv 4x4/2, conv 4x4/2, conv 3x3, two residual blocks, conv 1x1 -> 8 x 8 tokens of 64 features
          -> the tokeniser -> conv 3x3, two residual blocks, two transposed convs 4x4/2 -> image

Batches of 256 training images drawn with replacement, half of them mirrored, shifted by at most 2 pixels; Adam with a
cosine to 0, bfloat16 autocast for the network and float32 (TF32) for every tokeniser; loss: squared error over the
variance of the training pixels, and what the tokeniser adds. A step is a CUDA graph; several networks are trained step
by step together, each on a stream of its own, so that all of them see as many batches. Before and after the tokeniser a
step may go through torch.compile, which joins augmentation, casts, biases, ReLUs, sums and their gradients.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, FEATURES, BATCH = 128, 64, 256
CHUNK = 50
"""Steps for which random numbers are drawn and a learning rate is set at once."""


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = WIDTH // 4
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(WIDTH, inner, 3, padding=1), nn.ReLU(), nn.Conv2d(inner, WIDTH, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Autoencoder(nn.Module):
    def __init__(self, tokeniser: nn.Module) -> None:
        super().__init__()
        half = WIDTH // 2
        self.encoder = nn.Sequential(
            nn.Conv2d(3, half, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(half, WIDTH, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            Residual(),
            Residual(),
            nn.ReLU(),
            nn.Conv2d(WIDTH, FEATURES, 1),
        )
        self.tokeniser = tokeniser
        self.decoder = nn.Sequential(
            nn.Conv2d(FEATURES, WIDTH, 3, padding=1),
            Residual(),
            Residual(),
            nn.ReLU(),
            nn.ConvTranspose2d(WIDTH, half, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(half, 3, 4, 2, 1),
        )

    def tokens(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is decoded, indices, loss: in float32, whatever the network's."""
        with torch.autocast(features.device.type, enabled=False):
            q, index, loss = self.tokeniser(features.float())
        return q, index, loss

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with mixed(images.device):
            q, index, _ = self.tokens(self.encoder(images))
            return self.decoder(q).float(), index


def mixed(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def load(folder: Path, names: str, device: torch.device) -> Tensor:
    """The images [n, 3, 32, 32] of the files of these names, as bytes."""
    raw = [np.fromfile(path, np.uint8) for path in sorted((folder / "cifar-10-batches-bin").glob(names))]
    return torch.from_numpy(np.concatenate([r.reshape(-1, 3073)[:, 1:] for r in raw])).to(device).view(-1, 3, 32, 32)


def pixels(images: Tensor) -> Tensor:
    """From -0.5 to 0.5."""
    return (images.float() / 255 - 0.5).contiguous(memory_format=torch.channels_last)


def moved(images: Tensor, picked: Tensor, shift: Tensor) -> Tensor:
    """Of images [n, 32, 32, 3] of bytes those picked [N], shifted by up to 2 pixels and half of them mirrored, by
    `shift` [N, 3], from 0 to 9."""
    place = torch.arange(32, device=images.device)
    down, right = ((place + shift[:, i, None] % 5 - 2).clamp(0, 31) for i in (0, 1))
    right = torch.where(shift[:, 2, None] < 5, right, 31 - right)
    return pixels(images[picked[:, None, None], down[:, :, None], right[:, None, :]].movedim(-1, 1))


def encoded(encoder: nn.Module, images: Tensor, picked: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """The batch that is picked, and its features."""
    x = moved(images, picked, shift)
    return x, encoder(x)


def error(decoder: nn.Module, q: Tensor, x: Tensor) -> Tensor:
    return F.mse_loss(decoder(q).float(), x)


class Training:
    """One network's training: `prepare` captures a step unless `captured` is False, `draw` fills the random numbers of
    a chunk of them."""

    captured = True

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float, device: torch.device, **options: float) -> None:
        self.rate, self.lr = rate, torch.tensor(rate, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.on_gpu = device.type == "cuda"
        self.stream = torch.cuda.Stream() if self.on_gpu else None
        kind = torch.optim.AdamW if "weight_decay" in options else torch.optim.Adam
        self.optimiser = kind(parameters, lr=self.lr, fused=True, capturable=self.on_gpu, **options)
        self.call: Callable[[], object] = self.step

    def loss(self) -> Tensor:
        """Of the batch with the number `at` in the chunk."""
        raise NotImplementedError

    def draw(self) -> None:
        """The random numbers of the next chunk."""
        raise NotImplementedError

    def step(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()
        self.at.add_(1)

    def prepare(self) -> None:
        """Make three steps, and capture the next as a graph where a step never waits for the GPU."""
        self.draw()
        if not self.on_gpu:
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        if not self.captured:
            return
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step()
        self.call = graph.replay


class OfImages(Training):
    def __init__(self, network: Autoencoder, images: Tensor, rate: float, seed: int, *, compiled: bool = False) -> None:
        super().__init__(list(network.parameters()), rate, images.device)
        self.encoded, self.error = (torch.compile(f) if compiled else f for f in (encoded, error))
        self.network, self.images, device = network, images.movedim(1, -1), images.device
        self.variance = pixels(images[:10_000]).var()
        self.generator = torch.Generator(device).manual_seed(seed)
        self.picked = torch.zeros(CHUNK, BATCH, dtype=torch.int64, device=device)
        self.shift = torch.zeros(CHUNK, BATCH, 3, dtype=torch.int64, device=device)

    def draw(self) -> None:
        self.picked.random_(0, len(self.images), generator=self.generator)
        self.shift.random_(0, 10, generator=self.generator)
        self.at.zero_()

    def loss(self) -> Tensor:
        picked, shift = self.picked[self.at].squeeze(0), self.shift[self.at].squeeze(0)
        with mixed(self.images.device):
            x, features = self.encoded(self.network.encoder, self.images, picked, shift)
            q, _, loss = self.network.tokens(features)
            return self.error(self.network.decoder, q, x) / self.variance + loss


def train_together(trainings: Sequence[Training], steps: int, deadline: float, rise: int = 0) -> tuple[int, float]:
    """Train with a cosine to 0 for so many steps, or for fewer that end at the deadline; the steps made, and
    milliseconds for one of each. The learning rate rises linearly over the first `rise` steps."""
    for training in trainings:
        training.prepare()
    start, done = time.time(), 0
    while (share := max(done / steps, (time.time() - start) / max(deadline - start, 1e-9))) < 1:
        for training in trainings:
            with torch.cuda.stream(training.stream):
                training.draw()
                rising = min(1.0, (done + CHUNK / 2) / rise) if rise else 1.0
                training.lr.fill_(training.rate * rising * 0.5 * (1 + math.cos(math.pi * share)))
        for _ in range(min(CHUNK, steps - done)):
            for training in trainings:
                with torch.cuda.stream(training.stream):
                    training.call()
        if trainings[0].on_gpu:
            torch.cuda.synchronize()  # no more than these in the queue
        done += min(CHUNK, steps - done)
    return done, 1e3 * (time.time() - start) / max(done, 1)


@torch.no_grad()
def measure(network: Autoencoder, images: Tensor, codes: int) -> dict[str, float]:
    """PSNR of all images together, and usage and perplexity of all their tokens."""
    network.eval()
    error, counts = 0.0, torch.zeros(codes, device=images.device)
    for part in images.split(250):
        x = pixels(part)
        back, index = network(x)
        error += (back - x).double().square().sum().item()
        counts += torch.bincount(index.flatten().long(), minlength=codes)
    return quality(error / images.numel(), counts)


def quality(error: float, counts: Tensor) -> dict[str, float]:
    """PSNR of a mean squared error, and usage and perplexity of the counts of all codes."""
    share = counts.double() / counts.sum()
    return {
        "history.psnr": -10 * math.log10(error),
        "history.usage": (counts > 0).double().mean().item(),
        "history.perplexity": torch.special.entr(share).sum().exp().item(),
    }
