"""Masked models of images and their classifiers, for fine_tuning.py and guidance.py.

    python benchmarks/masked_images.py networks mnist --data DIR --out DIR          a U-Net and two classifiers
    python benchmarks/masked_images.py perceptrons mnist --data DIR --out DIR       a perceptron, for fine_tuning.py

Also of fashion-mnist. MNIST has 2 grey levels, split at 128, Fashion-MNIST 8. The U-Net and the classifiers see 32 x 32
pixels (28 x 28 and an edge of zeros, as in SGDD), the perceptron, which is much cheaper, 28 x 28. Classifier A gives
rewards and saw the first half of the training images; B judges and saw the second half.
"""

import argparse
import gzip
import itertools
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = {"mnist": 2, "fashion-mnist": 8}
SIDE, LENGTH, WIDTH = 32, 1024, 48
CROPPED, PERCEPTRON_WIDTH = 784, 1024
STEPS, BATCH, CLASSIFIER_STEPS = 6000, 256, 1500


def read(folder: Path, name: str, part: str) -> tuple[Tensor, Tensor]:
    """Grey levels [N, 1024], int64, and labels, of "train" or "t10k"."""
    raw = []
    for kind, head in (("images-idx3", 16), ("labels-idx1", 8)):
        place = folder / name / f"{part}-{kind}-ubyte.gz"
        data = gzip.decompress(place.read_bytes()) if place.exists() else place.with_suffix("").read_bytes()
        raw.append(torch.frombuffer(bytearray(data), dtype=torch.uint8)[head:])
    return padded(raw[0].view(-1, 784).long() * LEVELS[name] // 256), raw[1].long()


def padded(images: Tensor) -> Tensor:
    """28 x 28 pixels [B, 784] as 32 x 32."""
    return F.pad(images.view(-1, 28, 28), (2, 2, 2, 2)).flatten(1)


def cropped(images: Tensor) -> Tensor:
    """32 x 32 pixels [B, 1024] as 28 x 28."""
    return images.view(-1, SIDE, SIDE)[:, 2:-2, 2:-2].flatten(1)


def block(width: int) -> nn.Sequential:
    layers = [(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(2)]
    return nn.Sequential(*(layer for three in layers for layer in three))


class Network(nn.Module):
    """A U-Net over squares of 2 x 2 pixels: from a state [B, 1024, K + 1] to logits [B, 1024, K]; it sees no time."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels
        self.first = nn.Conv2d(4 * (levels + 1), WIDTH, 3, padding=1)
        self.places = nn.Parameter(torch.zeros(1, WIDTH, SIDE // 2, SIDE // 2))
        self.down = nn.Conv2d(WIDTH, 2 * WIDTH, 2, stride=2)
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 2, stride=2)
        self.before, self.after = (nn.ModuleList([block(WIDTH)]) for _ in range(2))
        self.inner = nn.ModuleList([block(2 * WIDTH) for _ in range(3)])
        self.last = nn.Sequential(nn.GroupNorm(8, WIDTH), nn.SiLU(), nn.Conv2d(WIDTH, 4 * levels, 3, padding=1))

    def forward(self, state: Tensor) -> Tensor:
        x = state.view(-1, SIDE, SIDE, self.levels + 1).permute(0, 3, 1, 2)
        x = self.first(F.pixel_unshuffle(x, 2)) + self.places
        for layer in self.before:
            x = x + layer(x)
        y = self.down(x)
        for layer in self.inner:
            y = y + layer(y)
        x = x + self.up(y)
        for layer in self.after:
            x = x + layer(x)
        return F.pixel_shuffle(self.last(x), 2).flatten(2).transpose(1, 2)


class Perceptron(nn.Module):
    """From a state [B, 784, K + 1] to logits [B, 784, K]; an orderless NADE of three hidden layers."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels, width = levels, PERCEPTRON_WIDTH
        self.first = nn.Linear(CROPPED * (levels + 1), width)
        parts = [
            nn.Sequential(nn.LayerNorm(width), nn.GELU(), nn.Linear(width, out))
            for out in (width, width, CROPPED * levels)
        ]
        self.inner, self.last = nn.ModuleList(parts[:2]), parts[2]

    def forward(self, state: Tensor) -> Tensor:
        x = self.first(state.flatten(1))
        for inner in self.inner:
            x = x + inner(x)
        return self.last(x).view(-1, CROPPED, self.levels)


class Classifier(nn.Module):
    """From one-hot pixels [B, 1024, K], or [B, 784, K], to logits of ten classes, through 64 features."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.register_buffer("grey", torch.linspace(0, 1, levels))
        widths = (1, 16, 32, 64)
        self.body = nn.Sequential(
            *(
                layer
                for a, b in itertools.pairwise(widths)
                for layer in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.GELU())
            ),
            nn.Flatten(),
            nn.Linear(64 * 16, 64),
            nn.GELU(),
        )
        self.head = nn.Linear(64, 10)

    def features(self, x0: Tensor) -> Tensor:
        x = x0 @ self.grey
        return self.body((padded(x) if x.shape[-1] == CROPPED else x).view(-1, 1, SIDE, SIDE))

    def forward(self, x0: Tensor) -> Tensor:
        return self.head(self.features(x0))


def classifier(ids: Tensor, labels: Tensor, levels: int, steps: int, seed: int) -> Classifier:
    """A tenth of the pixels at most is replaced by others, so that it knows images that are not quite right."""
    torch.manual_seed(seed)
    model = Classifier(levels).to(ids.device)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, steps)
    for _ in range(steps):
        pick = torch.randint(len(ids), (BATCH,), device=ids.device)
        x, share = ids[pick], 0.1 * torch.rand(BATCH, 1, device=ids.device)
        x = torch.where(torch.rand(x.shape, device=x.device) < share, torch.randint_like(x, levels), x)
        loss = F.cross_entropy(model(F.one_hot(x, levels).float()), labels[pick])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.requires_grad_(False)


def masked_model(model: nn.Module, ids: Tensor, levels: int, steps: int) -> nn.Module:
    """Trained to fill in what is masked, every share masked equally often; the mean of its weights over time."""
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998))
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, steps, pct_start=0.1)
    for step in range(steps):
        x = ids[torch.randint(len(ids), (BATCH,), device=ids.device)]
        share = (torch.rand((), device=x.device) + torch.arange(BATCH, device=x.device) / BATCH) % 1
        masked = torch.rand(x.shape, device=x.device) < share.unsqueeze(-1)
        state = F.one_hot(x.masked_fill(masked, levels), levels + 1).float()
        each = F.cross_entropy(model(state).flatten(0, 1), x.flatten(), reduction="none").view(x.shape)
        # The likelihood's bound: the mean over masked pixels, for each image.
        loss = ((each * masked).sum(-1) / masked.sum(-1).clamp_min(1)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        mean.update_parameters(model)
        if step % 500 == 0 or step == steps - 1:
            print(f"masked model {step} {ids.shape[1] * loss.item():.1f} nats", flush=True)
    return mean.module.requires_grad_(False)


def load(folder: Path, name: str, device: str, kind: type[nn.Module] = Network) -> list[nn.Module]:
    """The masked model, classifier A and classifier B."""
    kept = torch.load(folder / f"{name}.pt", map_location=device, weights_only=True)
    if kind is Perceptron:
        kept[0] = torch.load(folder / f"{name}-perceptron.pt", map_location=device, weights_only=True)[0]
    models = [kind(LEVELS[name]), Classifier(LEVELS[name]), Classifier(LEVELS[name])]
    for model, values in zip(models, kept, strict=True):
        model.load_state_dict({key: value.float() for key, value in values.items()})
        model.to(device).requires_grad_(False)
    return models


def save(models: list[nn.Module], file: Path) -> None:
    """In half precision, which is what is then used: a file that others wait for appears whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save([{k: v.half() for k, v in model.state_dict().items()} for model in models], file.with_suffix(".tmp"))
    os.replace(file.with_suffix(".tmp"), file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["networks", "perceptrons"])
    parser.add_argument("name", choices=list(LEVELS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    given = parser.parse_args()
    device, start = "cuda" if torch.cuda.is_available() else "cpu", time.perf_counter()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    ids, labels = (x.to(device) for x in read(given.data, given.name, "train"))
    levels, half = LEVELS[given.name], len(ids) // 2
    steps, few = (3, 3) if given.quick else (STEPS, CLASSIFIER_STEPS)
    torch.manual_seed(2)
    if given.what == "perceptrons":
        model = masked_model(Perceptron(levels).to(device), cropped(ids), levels, steps)
        return save([model], given.out / f"{given.name}-perceptron.pt")
    judges = [classifier(ids[half * i :][:half], labels[half * i :][:half], levels, few, seed=i) for i in range(2)]
    test, truth = (x.to(device) for x in read(given.data, given.name, "t10k"))
    for name, judge in zip("AB", judges, strict=True):
        right = (judge(F.one_hot(test, levels).float()).argmax(-1) == truth).float().mean().item()
        print(f"classifier {name}: {right:.4f}", flush=True)
    save([masked_model(Network(levels).to(device), ids, levels, steps), *judges], given.out / f"{given.name}.pt")
    print(f"{given.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main()
