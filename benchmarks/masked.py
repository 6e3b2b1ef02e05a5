"""Gradients of masked diffusion against the number of steps, and what a step costs beyond its network.

    python benchmarks/masked.py steps       norm and cosine, 4 to 256 steps of 256 tokens, into steps.runs.csv
    python benchmarks/masked.py orders      norm at 4 and at 256 steps of 256 tokens, every order and path
    python benchmarks/masked.py overhead    time and memory at [64, 256, 32,000], bfloat16

The network is a transformer of two layers of width 48 over a convolution of three tokens, trained on sequences of a
Markov chain of 4 states; the reward a random tanh network. Cosines are those of single batches of 128 rollouts with the
score function's mean gradient of 8,192 rollouts, corrected for that mean's own noise by its halves. Loops that are
copied from each other reveal each token with probability 1 / (steps left); the reference, as `rollout`, equally many at
each step.

How `steps` is judged, written down before the run: over eight batches each, or as many, at least four, as every path
has when the time is over, a path explodes if its mean norm at 256 steps is more than twice that at 4, or is no number.
    E1: the copied loop with one-hot states and its mask channel attached explodes, and with the channel detached not.
    E2: no path of `rollout` explodes, and none has less than half of its norm at 4.
    E3: at 64 steps the mean cosine of `rollout` through tokens is not lower than that of the copied loop with the
        channel detached by more than two standard errors.
A first run, whose network had no convolution and had learned nothing, showed the same of E1.
"""

import argparse
import csv
import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import runs
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst

FILE = Path(__file__).with_suffix(".csv")
K, WIDTH, BATCH = 4, 48, 128
LENGTH, LARGE, MANY, BATCHES = 256, 1024, 4, 8
"""Tokens; rollouts of one batch of the reference, how many such batches are half of it; batches of each path."""
COLUMNS = (
    "task",
    "arm",
    "estimator",
    "estimator.tau_f",
    "estimator.tau_b",
    "estimator.tau",
    "steps",
    "tokens",
    "seed",
    "history.norm",
    "history.cosine",
    "history.reference_norm",
)
STEPS = (4, 16, 64, 256)
ROLLOUT = {
    "rollout, tokens": ("tokens", 1.0),
    "rollout, tokens, tau_b 2": ("tokens", 2.0),
    "rollout, all": ("all", 1.0),
}
LOOPS = {
    "copied loop, one-hot": (1.0, True, True),
    "copied loop, flag detached": (1.0, True, False),
    "copied loop, soft, tau 1": (1.0, False, True),
    "copied loop, soft, tau 0.5": (0.5, False, True),
}
"""tau, whether states are one-hot, whether the mask channel carries a gradient."""


class Network(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Conv1d(K + 1, WIDTH, 3, padding=1), nn.Parameter(0.02 * torch.randn(length, WIDTH))
        layer = lambda: nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)  # noqa: E731
        self.body, self.head = nn.Sequential(layer(), layer(), nn.LayerNorm(WIDTH)), nn.Linear(WIDTH, K)

    def forward(self, state: Tensor) -> Tensor:
        return self.head(self.body(self.embed(state.transpose(1, 2)).transpose(1, 2) + self.place))


def trained(length: int, device: str, steps: int) -> Network:
    """On sequences that mostly go on in a circle of 4 states."""
    torch.manual_seed(0)
    model = Network(length).to(device)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        moves = (torch.rand(BATCH, length, device=device) < 0.8).long()
        ids = (torch.randint(K, (BATCH, 1), device=device) + moves.cumsum(-1)) % K
        masked = torch.rand(BATCH, length, device=device) < torch.rand(BATCH, 1, device=device)
        logits = model(dst.masked.from_ids(ids.masked_fill(masked, K), K))
        loss = -dst.masked.log_prob(logits, ids, masked).sum() / masked.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"trained: {loss.item():.3f} nats a masked token", flush=True)
    return model


def reward_of(length: int, device: str) -> Callable[[Tensor], Tensor]:
    g = torch.Generator().manual_seed(1)
    first, last = torch.randn(length * K, 32, generator=g), torch.randn(32, generator=g)
    first, last = (first / length**0.5).to(device), (last / 32**0.5).to(device)
    return lambda x0: (x0.flatten(1) @ first).tanh() @ last


def copied_loop(model: Network, state: Tensor, steps: int, tau: float, hard: bool, attached: bool) -> Tensor:
    """The loop of DRAKES and its copies: token or mask from one softmax, revealed tokens kept by the mask channel."""

    def step(x: Tensor, left: int) -> Tensor:
        p = torch.cat((model(x).softmax(-1) / left, torch.full_like(x[..., :1], 1 - 1 / left)), -1)
        l = p.clamp_min(1e-12).log()
        n = dst.categorical.gumbel_ste(l, tau=tau) if hard else dst.categorical.gumbel_soft(l, tau=tau)
        m = x[..., -1:] if attached else x[..., -1:].detach()
        return (1 - m) * x + m * n

    x = state
    for left in range(steps, 0, -1):
        x = checkpoint(step, x, left, use_reentrant=False)
    x = x[..., :-1]
    best = torch.nn.functional.one_hot(x.argmax(-1), K).to(x)
    return best + (x - x.detach())


def x0_of(path: str, model: Network, state: Tensor, steps: int) -> Tensor:
    if path in LOOPS:
        return copied_loop(model, state, steps, *LOOPS[path])
    through, tau_b = ROLLOUT[path]
    return dst.masked.rollout(model, state, steps, dst.Decoupled(tau_f=1.0, tau_b=tau_b), through=through).x0


def gradient(value: Tensor, model: nn.Module) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])


def by_score(model: Network, reward: Callable[[Tensor], Tensor], state: Tensor, steps: int) -> Tensor:
    out = dst.masked.rollout(model, state, steps, dst.SoftmaxSTE(tau=1.0))
    return gradient(dst.masked.expected_reward(reward(out.x0.detach()), out, by="rloo"), model)


def estimator_of(path: str) -> dict[str, Any]:
    """The columns that say which estimator a path has."""
    if path in LOOPS:
        return {"estimator": "gumbel_ste" if LOOPS[path][1] else "gumbel_soft", "estimator.tau": LOOPS[path][0]}
    return {"estimator": "decoupled", "estimator.tau_f": 1.0, "estimator.tau_b": ROLLOUT.get(path, ("", 1.0))[1]}


def steps(device: str, quick: bool, counts: list[int], file: Path) -> None:
    half, batches, training, length = (1, 2, 30, 16) if quick else (MANY, BATCHES, 1000, LENGTH)
    model, reward = trained(length, device, training), reward_of(length, device)
    state, large = (dst.masked.start(B, length, K, device=device) for B in (BATCH, LARGE))
    for count in (4, 16) if quick else counts:
        torch.manual_seed(2)
        halves = [sum(by_score(model, reward, large, count).double() for _ in range(half)) / half for _ in range(2)]
        mean, true_norm = (halves[0] + halves[1]) / 2, (halves[0] @ halves[1]).clamp_min(0).sqrt()
        for seed in range(batches):
            for path in (*LOOPS, *ROLLOUT, "score function"):
                torch.manual_seed(100 + seed)
                start = time.perf_counter()
                if path == "score function":
                    g = by_score(model, reward, state, count).double()
                else:
                    g = gradient(reward(x0_of(path, model, state, count)).mean(), model).double()
                row = {"task": "masked-gradients", "arm": path, **estimator_of(path), "steps": count, "tokens": length}
                row |= {"seed": seed, "history.norm": g.norm().item(), "history.reference_norm": true_norm.item()}
                row |= {"history.cosine": (g @ mean / (g.norm() * true_norm)).item()}
                runs.write(file, COLUMNS, {**row, "provenance.seconds": time.perf_counter() - start})


def orders(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    length = 16 if quick else 256
    model, reward = trained(length, device, 30 if quick else 60), reward_of(length, device)
    state = dst.masked.start(16, length, K, device=device)
    for order in ("random", "confidence", torch.arange(length)):
        for through in ("tokens", "all"):
            for count in (4, length):
                torch.manual_seed(3)
                start = time.perf_counter()
                taus = dst.Decoupled(tau_f=1.0, tau_b=1.0)
                out = dst.masked.rollout(model, state, count, taus, order=order, through=through)
                norm = gradient(reward(out.x0).mean(), model).norm().item()
                name = order if isinstance(order, str) else "left to right"
                yield {
                    "what": "orders",
                    "path": f"{through}, {name}",
                    "steps": count,
                    "tokens": length,
                    "norm": norm,
                    "batches": 1,
                    "seconds": time.perf_counter() - start,
                }


class Large(nn.Module):
    """Twelve layers of width 768, in bfloat16."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        each = [
            nn.TransformerEncoderLayer(width, 12, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        ]
        self.body = nn.Sequential(*each, nn.LayerNorm(width), self.head)


def overhead(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    B, L, V, width, layers = (2, 16, 100, 24, 1) if quick else (64, 256, 32_000, 768, 12)
    large = Large(width, layers, V).to(device, torch.bfloat16)
    model = dst.masked.Embedded(large.table, large.body, mask_id=3)
    ids = torch.full((B, L), 3, device=device)
    state = dst.masked.from_ids(ids, V, mask_id=3, dtype=torch.bfloat16)
    g = torch.randn(B, L, V, device=device, dtype=torch.bfloat16)

    def network(count: int, order: str) -> None:
        for _ in range(count):
            with torch.no_grad():
                model(ids)
            model(ids).backward(g)

    def rollout(count: int, order: str) -> None:
        out = dst.masked.rollout(
            model, state, count, dst.Decoupled(tau_f=1.0, tau_b=1.5), mask=model.allowed, order=order
        )
        out.x0.backward(g)

    for order in ("random", "confidence"):
        for count in (4, 16):
            for name, run in (("network", network), ("rollout", rollout)):
                run(count, order)
                if device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                times = []
                for _ in range(2):
                    synchronise(device)
                    start = time.perf_counter()
                    run(count, order)
                    synchronise(device)
                    times.append((time.perf_counter() - start) / count)
                memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
                yield {
                    "what": "overhead",
                    "path": f"{name}, {order}",
                    "steps": count,
                    "tokens": L,
                    "ms": 1e3 * min(times),
                    "gib": memory,
                    "seconds": sum(times) * count,
                }


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["steps", "orders", "overhead"])
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--counts", type=int, nargs="+", default=list(STEPS), help="numbers of steps")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if given.what == "steps":
        return steps(device, given.quick, given.counts, given.out.with_name("steps.runs.csv"))
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    columns = [
        "what",
        "path",
        "steps",
        "tokens",
        "norm",
        "cosine",
        "batches",
        "ms",
        "gib",
        "seconds",
        "device",
        "torch",
        "date",
    ]
    new = not given.out.exists()
    with given.out.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, columns, restval="", lineterminator="\n")
        if new:
            writer.writeheader()
        for row in globals()[given.what](device, given.quick):
            values = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
            today = datetime.date.today().isoformat()
            writer.writerow({**values, "device": name, "torch": torch.__version__, "date": today})
            lines.flush()
            print(*values.values(), flush=True)
    return None


if __name__ == "__main__":
    main()
