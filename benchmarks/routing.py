"""What a router learns through all experts, and through the chosen one alone (docs/patterns.md).

    python benchmarks/routing.py        four minutes on one core

Four linear experts for four kinds of tokens. The error is relative to the target's square, by argmax, on fresh tokens.
"""

from statistics import fmean, stdev

import torch
from torch import Tensor, nn

import decoupled_st as dst

KINDS, WIDTH, STEPS, SEEDS = 4, 8, 1500, 20


class World:
    """Tokens around a centre of each kind, which a matrix of its own maps to the target."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(KINDS, WIDTH, generator=self.generator)
        self.maps = torch.randn(KINDS, WIDTH, WIDTH, generator=self.generator)

    def tokens(self, count: int) -> tuple[Tensor, Tensor]:
        kind = torch.randint(KINDS, (count,), generator=self.generator)
        x = self.centres[kind] + 0.5 * torch.randn(count, WIDTH, generator=self.generator)
        return x, torch.einsum("nij,nj->ni", self.maps[kind], x)


def error(seed: int, estimator: dst.Estimator, *, chosen_alone: bool) -> float:
    torch.manual_seed(seed)
    world = World(seed)
    router = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, KINDS))
    experts = nn.Parameter(0.1 * torch.randn(KINDS, WIDTH, WIDTH))
    optimiser = torch.optim.Adam([*router.parameters(), experts], lr=3e-3)
    for _ in range(STEPS):
        x, y = world.tokens(128)
        z = estimator.categorical(router(x))
        if chosen_alone:
            index = z.argmax(-1, keepdim=True)
            output = torch.einsum("nij,nj->ni", experts[index[:, 0]], x) * z.gather(-1, index)
        else:
            output = torch.einsum("ne,eij,nj->ni", z, experts, x)
        optimiser.zero_grad()
        (output - y).square().mean().backward()
        optimiser.step()
    x, y = world.tokens(4000)
    with torch.no_grad():
        z = estimator.deterministic().categorical(router(x))
        output = torch.einsum("ne,eij,nj->ni", z, experts, x)
    return float((output - y).square().mean() / y.square().mean())


def main() -> None:
    torch.set_num_threads(1)
    estimators: tuple[dst.Estimator, ...] = (
        dst.Decoupled(tau_f=0.5, tau_b=1.0), dst.GumbelSTE(tau=1.0), dst.IdentitySTE(),
    )  # fmt: skip
    for estimator in estimators:
        for chosen_alone in (False, True):
            errors = [error(seed, estimator, chosen_alone=chosen_alone) for seed in range(SEEDS)]
            through = "the chosen expert" if chosen_alone else "all experts"
            print(f"{estimator}, through {through}: {fmean(errors):.3f} ± {stdev(errors):.3f}")


if __name__ == "__main__":
    main()
