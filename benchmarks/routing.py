"""What a router learns: through all experts or the chosen one; and 64 experts against plain weights (docs/routing.md).

    python benchmarks/routing.py            four linear experts for four kinds of tokens: four minutes on one core
    python benchmarks/routing.py mixture    64 linear experts, k of them to a token: forty minutes on one core

The error is relative to the target's square, without a draw, on fresh tokens.
"""

import itertools
import sys
from statistics import fmean, stdev

import torch
from torch import Tensor, nn

import decoupled_st as dst

WIDTH, STEPS = 8, 1500
JUDGED = range(100, 110)
"""Seeds of the mixture's table; settings are chosen on other seeds."""
TUNED = range(3)


class World:
    """Tokens around a centre of each kind, which the mean of `k` of `maps` matrices maps to the target."""

    def __init__(self, seed: int, kinds: int, k: int = 1, spread: float = 0.5) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(kinds, WIDTH, generator=self.generator)
        maps = torch.randn(kinds, WIDTH, WIDTH, generator=self.generator)
        self.spread, self.maps = spread, maps
        if k > 1:
            sets = torch.stack([torch.randperm(kinds, generator=self.generator)[:k] for _ in range(kinds)])
            self.maps = maps[sets].sum(1) / k**0.5

    def tokens(self, count: int) -> tuple[Tensor, Tensor]:
        kind = torch.randint(len(self.maps), (count,), generator=self.generator)
        x = self.centres[kind] + self.spread * torch.randn(count, WIDTH, generator=self.generator)
        return x, torch.einsum("nij,nj->ni", self.maps[kind], x)


def error(seed: int, estimator: dst.Estimator, *, chosen_alone: bool) -> float:
    """One choice among four experts."""
    torch.manual_seed(seed)
    world = World(seed, 4)
    router = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 4))
    experts = nn.Parameter(0.1 * torch.randn(4, WIDTH, WIDTH))
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


class Plain(dst.nn.Router):
    """Mixtral's router: the k largest logits, and the softmax over them."""

    def forward(self, x: Tensor) -> dst.nn.Routed:  # type: ignore[override]
        logits = self.logits(x)
        top = logits.topk(self.choose.k, -1)
        z = torch.zeros_like(logits).scatter(-1, top.indices, 1 / self.choose.k)
        balance = self.balance * logits.shape[-1] * (z.mean(0) * logits.softmax(-1).mean(0)).sum()
        return dst.nn.Routed(top.indices, top.values.softmax(-1), balance)


def mixture(seed: int, router: dst.nn.Router, lr: float, k: int) -> float:
    """k of 64 experts."""
    torch.manual_seed(seed)
    world = World(seed, 64, k, spread=0.3)
    features = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU())
    router.logits.reset_parameters()
    experts = nn.Parameter(0.3 * torch.randn(64, WIDTH, WIDTH))
    optimiser = torch.optim.Adam([*features.parameters(), *router.parameters(), experts], lr=lr)

    def output(x: Tensor) -> tuple[Tensor, Tensor]:
        chosen, weights, balance = router(features(x))
        return torch.einsum("nk,nkij,nj->ni", weights, experts[chosen], x), balance

    router.train()
    for _ in range(STEPS):
        x, y = world.tokens(256)
        predicted, balance = output(x)
        optimiser.zero_grad()
        ((predicted - y).square().mean() + balance).backward()
        optimiser.step()
    router.eval()
    x, y = world.tokens(4000)
    with torch.no_grad():
        return float((output(x)[0] - y).square().mean() / y.square().mean())


def compare(k: int) -> None:
    """Each router at the setting that is best on seeds of its own, on fresh seeds."""
    rates = (3e-3, 1e-2, 3e-2)
    plain = [
        (f"plain weights, balance {weight}, lr {lr}", Plain(64, 64, k, balance=weight), lr)
        for weight, lr in itertools.product((0.003, 0.01, 0.03), rates)
    ]
    ours = [
        (f"Router(tau_f=0, tau_b={b}), lr {lr}", dst.nn.Router(64, 64, k, tau_f=0.0, tau_b=b), lr)
        for b, lr in itertools.product((0.05, 0.1, 0.25), rates)
    ]
    for settings in (plain, ours):
        means = [fmean(mixture(seed, router, lr, k) for seed in TUNED) for _, router, lr in settings]
        name, router, lr = settings[means.index(min(means))]
        errors = [mixture(seed, router, lr, k) for seed in JUDGED]
        print(f"top {k} of 64, {name}: {fmean(errors):.4f} ± {stdev(errors):.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if "mixture" in sys.argv[1:]:
        for k in (2, 8):
            compare(k)
        return
    estimators = (dst.Decoupled(tau_f=0.5, tau_b=1.0), dst.GumbelSTE(tau=1.0), dst.IdentitySTE())
    for estimator in estimators:
        for chosen_alone in (False, True):
            errors = [error(seed, estimator, chosen_alone=chosen_alone) for seed in range(20)]
            through = "the chosen expert" if chosen_alone else "all experts"
            print(f"{estimator}, through {through}: {fmean(errors):.3f} ± {stdev(errors):.3f}")


if __name__ == "__main__":
    main()
