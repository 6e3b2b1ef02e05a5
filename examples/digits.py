"""Four estimators on scikit-learn's digits: a classifier that passes each image through four 8-way choices.

    python examples/digits.py

Each estimator tries three settings with five seeds each. The setting with the lowest mean validation loss is kept; the
test set is only reported. Under a minute on one CPU core.
"""

import time
from statistics import mean, stdev
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import decoupled_st as dst

LATENTS, CLASSES = 4, 8
EPOCHS, BATCH, LR = 20, 128, 3e-3
SEEDS, DECIMALS = range(5), (1, 1, 2, 1)

# Decoupled ST tries the three pairs that the paper arrived at on its own tasks, the one-temperature estimators three
# values out of those pairs. Identity STE has no temperature, so it tries learning rates; the others train at LR.
CANDIDATES: dict[str, list[tuple[dst.Estimator, float]]] = {
    "Identity STE": [(dst.IdentitySTE(), lr) for lr in (3e-3, 1e-2, 3e-2)],
    "Softmax STE": [(dst.SoftmaxSTE(tau=tau), LR) for tau in (0.1, 0.5, 2.0)],
    "ST Gumbel-Softmax": [(dst.GumbelSTE(tau=tau), LR) for tau in (0.1, 0.5, 2.0)],
    "Decoupled ST": [(dst.Decoupled(tau_f=f, tau_b=b), LR) for f, b in ((0.1, 0.7), (2.0, 0.5), (0.1, 2.0))],
}


class Split(NamedTuple):
    x: Tensor
    y: Tensor


class Run(NamedTuple):
    validation_loss: float
    sampled: float  # test accuracy in per cent, choices drawn as in training
    argmax: float  # the same with every choice fixed to its argmax
    test_loss: float
    codes: float  # perplexity of the codes drawn for the test images, mean over latents: how many of the 8 are used
    seconds: float


class Classifier(nn.Module):
    def __init__(self, estimator: dst.Estimator) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, LATENTS * CLASSES))
        self.choice = dst.nn.Categorical(estimator)
        self.head = nn.Sequential(nn.Linear(LATENTS * CLASSES, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.choice(self.encoder(x).unflatten(-1, (LATENTS, CLASSES)))
        return self.head(z.flatten(1)), z


def load() -> list[Split]:
    """1,197 images to train on, 300 to choose with, 300 to report."""
    digits, sizes = load_digits(), (1197, 300, 300)
    order = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32)[order], torch.tensor(digits.target)[order]
    return [Split(*pair) for pair in zip(x.split(sizes), y.split(sizes), strict=True)]


def train_one(estimator: dst.Estimator, lr: float, seed: int, splits: list[Split]) -> Run:
    train, validation, test = splits
    torch.manual_seed(seed)
    net = Classifier(estimator)
    optimiser = torch.optim.Adam(net.parameters(), lr, fused=True)
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train.x)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(net(train.x[batch])[0], train.y[batch]).backward()
            optimiser.step()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        validation_loss = F.cross_entropy(net(validation.x)[0], validation.y).item()
        scores, z = net(test.x)
        test_loss = F.cross_entropy(scores, test.y).item()
        codes = dst.diagnostics.perplexity(z.argmax(-1), CLASSES).mean().item()
        net.choice.estimator = estimator.deterministic()
        fixed, _ = net(test.x)
    sampled, argmax = (100 * (s.argmax(-1) == test.y).double().mean().item() for s in (scores, fixed))
    return Run(validation_loss, sampled, argmax, test_loss, codes, seconds)


def main() -> None:
    torch.set_num_threads(1)  # so small a network is fastest on one core, and the same numbers come out every time
    console = Console() if Console().is_terminal else Console(width=120)
    title = f"digits, {LATENTS} choices of {CLASSES}; mean ± standard deviation, n = {len(SEEDS)} seeds"
    headings = ("estimator", "setting chosen", "test acc. %", "argmax %", "test loss", "codes used", "s per run")
    table = Table(*headings, title=title)
    splits = load()
    with Progress(console=console) as progress:
        bar = progress.add_task("settings trained", total=sum(map(len, CANDIDATES.values())))
        for name, settings in CANDIDATES.items():
            lowest, row = float("inf"), []
            for estimator, lr in settings:
                runs = [train_one(estimator, lr, seed, splits) for seed in SEEDS]
                progress.advance(bar)
                validation, *reported, seconds = zip(*runs, strict=True)
                if mean(validation) < lowest:
                    given = {**estimator.to_dict(), "lr": lr}
                    setting = ", ".join(f"{key}={value:g}" for key, value in given.items() if key != "name")
                    spreads = [f"{mean(v):.{d}f} ± {stdev(v):.{d}f}" for v, d in zip(reported, DECIMALS, strict=True)]
                    lowest, row = mean(validation), [setting, *spreads, f"{mean(seconds):.2f}"]
            table.add_row(name, *row)
    console.print(table)


if __name__ == "__main__":
    main()
