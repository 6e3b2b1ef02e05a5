"""Four estimators on scikit-learn's digits: a classifier that must pass each image through four 8-way choices.

    python examples/digits.py

Each estimator tries three settings with five seeds each. The setting with the lowest mean validation loss is kept, and
only then is the test set looked at. One CPU core, about half a minute.
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
EPOCHS, BATCH, LR = 30, 100, 3e-3
SEEDS = range(5)

# Identity STE has no temperature, so it tries learning rates. Decoupled ST tries the three pairs that the paper
# arrived at on its own three tasks. Everything else is at LR.
CANDIDATES: dict[str, list[tuple[dst.Estimator, float]]] = {
    "Identity STE": [(dst.IdentitySTE(), lr) for lr in (1e-3, 3e-3, 1e-2)],
    "Softmax STE": [(dst.SoftmaxSTE(tau=tau), LR) for tau in (0.5, 1.0, 2.0)],
    "ST Gumbel-Softmax": [(dst.GumbelSTE(tau=tau), LR) for tau in (0.5, 1.0, 2.0)],
    "Decoupled ST": [(dst.Decoupled(tau_f=f, tau_b=b), LR) for f, b in ((0.1, 0.7), (2.0, 0.5), (0.1, 2.0))],
}


class Split(NamedTuple):
    x: Tensor
    y: Tensor


class Run(NamedTuple):
    validation_loss: float
    test_loss: float
    sampled: float
    """Test accuracy, per cent, with the forward pass of training."""
    argmax: float
    """Test accuracy, per cent, with every choice fixed to its argmax."""
    codes: float
    """Perplexity of the codes drawn for the test images, mean over latents: how many of the 8 are in use."""
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


def load() -> tuple[Split, Split, Split]:
    """1,197 images to train on, 300 to choose with, 300 to report."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    y = torch.tensor(digits.target)[order]
    sizes = (1197, 300, 300)
    train, validation, test = (Split(*parts) for parts in zip(x.split(sizes), y.split(sizes), strict=True))
    return train, validation, test


def train_one(estimator: dst.Estimator, lr: float, seed: int, splits: tuple[Split, Split, Split]) -> Run:
    train, validation, test = splits
    torch.manual_seed(seed)
    net = Classifier(estimator)
    optimiser = torch.optim.Adam(net.parameters(), lr)
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train.x)).split(BATCH):
            loss = F.cross_entropy(net(train.x[batch])[0], train.y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        validation_loss = F.cross_entropy(net(validation.x)[0], validation.y).item()
        scores, z = net(test.x)
        codes = dst.diagnostics.perplexity(z.argmax(-1), CLASSES).mean().item()
        net.choice.estimator = estimator.deterministic()
        fixed, _ = net(test.x)
    sampled, argmax = (100 * (s.argmax(-1) == test.y).double().mean().item() for s in (scores, fixed))
    return Run(validation_loss, F.cross_entropy(scores, test.y).item(), sampled, argmax, codes, seconds)


def main() -> None:
    torch.set_num_threads(1)  # so small a network is faster on one core, and the same numbers come out every time
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    splits = load()
    table = Table(title=f"digits, {LATENTS} choices of {CLASSES}; mean ± standard deviation, n = {len(SEEDS)} seeds")
    for column in ("estimator", "setting chosen", "test acc. %", "argmax %", "test loss", "codes of 8", "s a run"):
        table.add_column(column, justify="left" if column.startswith(("est", "set")) else "right")
    with Progress(console=console) as progress:
        task = progress.add_task("training", total=len(SEEDS) * sum(map(len, CANDIDATES.values())))
        for name, settings in CANDIDATES.items():
            tried = []
            for estimator, lr in settings:
                tried.append([])
                for seed in SEEDS:
                    tried[-1].append(train_one(estimator, lr, seed, splits))
                    progress.advance(task)
            best = min(range(len(tried)), key=lambda i: mean(run.validation_loss for run in tried[i]))
            (estimator, lr), columns = settings[best], Run(*map(list, zip(*tried[best], strict=True)))
            cells = [(columns.sampled, 1), (columns.argmax, 1), (columns.test_loss, 2), (columns.codes, 1)]
            taus = [f"{key}={value:g}" for key, value in estimator.to_dict().items() if key != "name"]
            table.add_row(
                name,
                ", ".join([*taus, f"lr={lr:g}"]),
                *(f"{mean(values):.{places}f} ± {stdev(values):.{places}f}" for values, places in cells),
                f"{mean(columns.seconds):.2f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
