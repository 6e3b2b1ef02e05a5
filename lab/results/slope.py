"""How the gradient of each layer of the binary network falls with tau_b, at parameters that do not depend on it.

    python -m results.slope [--data DIR]

Untrained networks at the paper's scale, tau_f = 0.1, five seeds; the root mean square of the norm over the first eight
batches; slopes of its logarithm over that of tau_b. Prints the table in lab/results/README.md#the-slope-by-layer.
"""

import argparse

import numpy as np
import torch
from dst_lab.estimators import Choice
from dst_lab.fleet.loop import Fleet
from dst_lab.tasks.stochastic_binary import StochasticBinary, StochasticBinaryConfig
from studies.paper.recipes import SBN_TAU_B

SEEDS, BATCHES = 5, 8
LAYERS = {"0": "first hidden layer", "1": "second hidden layer", "2": "output layer"}


def squares(data: str | None) -> dict[str, np.ndarray]:
    """Layer -> [temperatures, seeds]: the mean square norm of its gradient."""
    paper = StochasticBinaryConfig.paper()
    choices = [Choice.make("decoupled", tau_f=0.1, tau_b=tau) for tau in SBN_TAU_B]
    configs = [
        StochasticBinaryConfig(**paper, estimator=choice, seed=seed) for choice in choices for seed in range(SEEDS)
    ]
    task = StochasticBinary(configs[0], data, torch.device("cpu"))
    fleet = Fleet(task, configs)
    order = fleet.streams.order(0, task.images)[fleet.streams.rows]
    found = {layer: np.zeros(len(configs)) for layer in LAYERS}
    for batch, index in enumerate(order.split(configs[0].batch, dim=1)[:BATCHES]):
        fleet.step = batch  # which its random numbers go by
        leaves = {name: p.detach().requires_grad_() for name, p in fleet.parameters.items()}
        loss = task.loss(leaves, index, fleet.chooser()).mean(-1)
        for name, gradient in zip(leaves, torch.autograd.grad(loss.sum(), list(leaves.values())), strict=True):
            found[name[0]] += gradient.flatten(1).square().sum(1).numpy() / BATCHES
    return {layer: values.reshape(len(SBN_TAU_B), SEEDS) for layer, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the data sets")
    found = squares(parser.parse_args().data)
    named = {LAYERS[layer]: values for layer, values in found.items()}
    named["all parameters"] = np.sum(list(found.values()), axis=0)
    print(f"| gradient of | slope, tau_b from {SBN_TAU_B[0]} to {SBN_TAU_B[-1]} | from 0.7 on |\n|---|---:|---:|")
    x, far = np.log(SBN_TAU_B), np.array(SBN_TAU_B) >= 0.7
    for name, values in named.items():
        y = np.log(values) / 2
        slopes = [np.polyfit(x, y, 1)[0], np.polyfit(x[far], y[far], 1)[0]]
        print(
            f"| {name} | "
            + " | ".join(f"{s.mean():.2f} ± {s.std(ddof=1):.2f}".replace("-0.00", "0.00") for s in slopes)
            + " |"
        )


if __name__ == "__main__":
    main()
