"""Tune your own network, its temperatures and its learning rate: `dst_lab.tune` calls your training function.

python lab/examples/tune.py          about a minute on a CPU; stop it at any moment, and run it again to go on
"""

import dst_lab
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import decoupled_st as dst

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.data, dtype=torch.float32) / 16
LABELS = torch.tensor(DIGITS.target)
TRAIN, VALIDATION = slice(0, 1200), slice(1200, 1500)  # the rest is for the end
EPOCHS = 10


def train(tau_f: float, tau_b: float, lr: float, seed: int) -> list[float]:
    """Any training code: takes what is tuned and a seed, returns the validation loss after each epoch."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(64, 64), dst.nn.Binary(dst.Decoupled(tau_f=tau_f, tau_b=tau_b)), nn.Linear(64, 10)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=lr)
    losses = []
    for _ in range(EPOCHS):
        for index in torch.randperm(1200).split(60):
            loss = F.cross_entropy(network(IMAGES[TRAIN][index]), LABELS[TRAIN][index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            losses.append(F.cross_entropy(network(IMAGES[VALIDATION]), LABELS[VALIDATION]).item())
    return losses


def main(store: str = "tune.sqlite") -> None:
    result = dst_lab.tune(
        train,
        tau_f=[0.0, 0.1, 0.5, 1.0],
        tau_b=[0.25, 0.5, 1.0, 2.0],
        lr=[1e-3, 3e-3, 1e-2],
        start={"lr": 3e-3},
        seeds=3,
        store=store,
    )
    for tau_f, tau_b, lr, loss in result.table:
        print(f"tau_f={tau_f:<5} tau_b={tau_b:<5} lr={lr:<5} validation loss {loss:.4f}")
    print(*result.notes, sep="\n")


if __name__ == "__main__":
    main()
