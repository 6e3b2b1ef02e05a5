"""Gradients of masked diffusion against the number of steps, and what a step costs beyond its network.

    python benchmarks/masked.py steps       norm and cosine, 4 to 256 steps (docs/diffusion.md)
    python benchmarks/masked.py orders      norm at 4 and at 256 steps of 256 tokens, every order and path
    python benchmarks/masked.py overhead    time and memory at [64, 256, 32,000], bfloat16
    python benchmarks/masked.py plot        docs/gradient-steps.svg from benchmarks/masked.csv

The network is a transformer of two layers of width 48, trained on sequences of a Markov chain of 4 states; the reward a
random tanh network. Cosines are those of single batches of 128 rollouts, mean over batches, with the score function's
gradient of 16,384 rollouts, in equal shares. Loops that are copied from each other reveal each token with probability
1 / (steps left); the reference, as `rollout`, equally many at each step.
"""

import argparse
import csv
import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import decoupled_st as dst

FILE = Path(__file__).with_suffix(".csv")
FIGURE = Path(__file__).parents[1] / "docs" / "gradient-steps.svg"
K, WIDTH, BATCH = 4, 48, 128
LENGTH, LARGE, MANY = 16, 1024, 16
"""Tokens; rollouts of one batch of the reference, and how many such batches."""
STEPS = (4, 16, 64, 256)
ROLLOUT = {
    "rollout, tokens": ("tokens", 1.0), "rollout, tokens, tau_b 2": ("tokens", 2.0), "rollout, all": ("all", 1.0),
}  # fmt: skip
LOOPS = {"copied loop, one-hot": (1.0, True, True), "copied loop, flag detached": (1.0, True, False),
         "copied loop, soft, tau 1": (1.0, False, True), "copied loop, soft, tau 0.5": (0.5, False, True)}  # fmt: skip
"""tau, whether states are one-hot, whether the mask channel carries a gradient."""


class Network(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(K + 1, WIDTH), nn.Parameter(0.02 * torch.randn(length, WIDTH))
        layer = lambda: nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)  # noqa: E731
        self.body, self.head = nn.Sequential(layer(), layer(), nn.LayerNorm(WIDTH)), nn.Linear(WIDTH, K)

    def forward(self, state: Tensor) -> Tensor:
        return self.head(self.body(self.embed(state) + self.place))


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
    x = state
    for t in range(steps, 0, -1):
        p = torch.cat((model(x).softmax(-1) / t, torch.full_like(x[..., :1], 1 - 1 / t)), -1)
        l = p.clamp_min(1e-12).log()
        n = dst.categorical.gumbel_ste(l, tau=tau) if hard else dst.categorical.gumbel_soft(l, tau=tau)
        m = x[..., -1:] if attached else x[..., -1:].detach()
        x = (1 - m) * x + m * n
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


def steps(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    many, batches, training = (2, 2, 30) if quick else (MANY, 2, 400)
    model, reward = trained(LENGTH, device, training), reward_of(LENGTH, device)
    state, large = (dst.masked.start(B, LENGTH, K, device=device) for B in (BATCH, LARGE))
    for count in (4, 16) if quick else STEPS:
        torch.manual_seed(2)
        if count <= LENGTH:  # a rollout takes no more steps than there are tokens
            reference = sum(by_score(model, reward, large, count) for _ in range(many))
        for path in (*LOOPS, *ROLLOUT, "score function"):
            torch.manual_seed(3)
            start, seen = time.perf_counter(), []
            for _ in range(batches):
                if path == "score function":
                    seen.append(by_score(model, reward, state, count))
                else:
                    seen.append(gradient(reward(x0_of(path, model, state, count)).mean(), model))
            cosines = [torch.cosine_similarity(g.double(), reference.double(), dim=0).item() for g in seen]
            norms = [g.double().norm().item() for g in seen]
            yield {
                "what": "steps", "path": path, "steps": count, "tokens": LENGTH, "norm": sum(norms) / batches,
                "cosine": sum(cosines) / batches, "batches": batches, "seconds": time.perf_counter() - start,
            }  # fmt: skip


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
                    "what": "orders", "path": f"{through}, {name}", "steps": count, "tokens": length, "norm": norm,
                    "batches": 1, "seconds": time.perf_counter() - start,
                }  # fmt: skip


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
                    "what": "overhead", "path": f"{name}, {order}", "steps": count, "tokens": L, "ms": 1e3 * min(times),
                    "gib": memory, "seconds": sum(times) * count,
                }  # fmt: skip


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plot() -> None:
    from dst_lab.figures.style import panels, styled, write

    with FILE.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["what"] == "steps"]
    with styled():
        figure, axes = panels(2, width=4.6, height=3.4)
        colors = ("#d55e00", "#c08a00", "#7d7f86", "#4d4f55", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")
        for path, color in zip((*LOOPS, *ROLLOUT, "score function"), colors, strict=True):
            own = [row for row in rows if row["path"] == path]
            for ax, name in zip(axes, ("norm", "cosine"), strict=True):
                ax.plot(
                    [int(row["steps"]) for row in own], [float(row[name]) for row in own], color=color, marker="o",
                    ls="--" if path in LOOPS else "-", label=path,
                )  # fmt: skip
        for ax, name in zip(axes, ("norm of the gradient", "cosine with the true gradient"), strict=True):
            ax.set(xscale="log", xlabel="steps", ylabel=name, xticks=STEPS, xticklabels=STEPS)
        axes[0].set_yscale("log")
        axes[1].legend(fontsize=7)
        FIGURE.write_bytes(write(figure, "svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["steps", "orders", "overhead", "plot"])
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    if given.what == "plot":
        return plot()
    device = "cuda" if torch.cuda.is_available() else "cpu"
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
