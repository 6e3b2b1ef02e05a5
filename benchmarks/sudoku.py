"""Sudoku by gradient descent on the logits of its cells: what separate temperatures are worth where nothing is known.

    python benchmarks/sudoku.py tune       every setting of every arm, on puzzles of their own
    python benchmarks/sudoku.py judge      the setting that each arm chose, on fresh puzzles

Records are lab/results/diffusion/sudoku.runs.csv; `dst claims --study lab/studies/diffusion` judges them.

The problem is ReDGE's (Gourevitch et al., 2026), without a prior: logits [81, 9] from 0, the clues given, and Adam on
the sum over 27 units and 9 digits of (count - 1)^2 of one draw of the grid per step, 3,000 steps, from 30 clues chosen
at random (solutions need not be unique: a grid is solved when every unit has every digit).

How it is judged, written down before the judging runs:
    Each arm has as many settings as Decoupled ST, 24. Chosen is the setting that solves most of the 512 tuning
    puzzles by its argmax grid at the end; of equal ones the one that solves more by a draw, then the lower rate.
    Judged are 1,000 fresh puzzles, five repetitions each. "Better" than an arm: at least 5 points more solved by
    argmax, mean over the repetitions, and more than two standard errors of the puzzles' paired differences. Otherwise
    "level", or "worse" by the same rule the other way round. The answer is yes if Decoupled ST is better than every
    rival.
    The arm `entropy` is a control: the penalty written multilinearly, with lambda sum p^2 added, which is what the
    penalty's squares make of Softmax STE's gradient in expectation (lambda = 3).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runs
import torch
from torch import Tensor

import decoupled_st as dst

FILE = Path(__file__).parents[1] / "lab/results/diffusion/sudoku.runs.csv"
STEPS, CLUES, DRAWS = 3000, 30, 8
PUZZLES = {"tune": (1, 512), "judge": (2, 1000)}
"""The seed of the puzzles, and how many."""
REPETITIONS = {"tune": 1, "judge": 5}
RATES = (0.05, 0.1, 0.2, 0.4)
FINE = tuple(round(0.02 * 50 ** (i / 23), 4) for i in range(24))
"""The learning rates of arms that have nothing else to choose: 0.02 to 1."""
COLUMNS = (
    "task",
    "phase",
    "arm",
    "estimator",
    "setting",
    "seed",
    "problems",
    "steps",
    "history.solved_argmax",
    "history.solved_drawn",
    "history.violations_argmax",
    "history.violations_drawn",
    "provenance.each",
)

Settings = dict[str, float]
Draw = Callable[[Tensor, dict[str, Tensor], Settings], Tensor]


@dataclass(frozen=True)
class Arm:
    """A way to a gradient; `draw(logits, numbers by setting, the first setting)` gives the grid that carries it."""

    estimator: str
    settings: tuple[Settings, ...]
    draw: Draw
    shared: tuple[str, ...] = ()
    """Numbers that all settings of one batch have in common."""


def over(rates: tuple[float, ...] = RATES, **values: tuple[float, ...]) -> tuple[Settings, ...]:
    """Every combination of values and learning rates."""
    settings: list[Settings] = [{}]
    for name, several in (*values.items(), ("lr", rates)):
        settings = [{**one, name: value} for one in settings for value in several]
    return tuple(settings)


def redge(l: Tensor, numbers: dict[str, Tensor], first: Settings) -> Tensor:
    """ReDGE's sample by its equations: x_0 given x_t exactly, DDIM between, straight through the last of them."""
    n = int(first["n"])
    alphas = [1.0, *torch.linspace(1 - first["t_1"], 1e-4, n - 1).tolist()]
    x = torch.randn_like(l)
    for t in range(n - 1, 0, -1):
        a, s = alphas[t], 1 - alphas[t]
        x0 = torch.softmax(l + a * x / s**2, -1)
        if t > 1:
            x = alphas[t - 1] * x0 + (1 - alphas[t - 1]) * (x - a * x0) / s
    hard = dst.categorical.softmax_ste(x0.detach().clamp_min(1e-20).log(), tau=1.0)
    return hard + (x0 - x0.detach())


ST = lambda l, t, first: dst.categorical.softmax_ste(l, tau=1.0)  # noqa: E731
ARMS = {
    "decoupled": Arm(
        "decoupled",
        over(tau_b=(0.5, 0.7, 1.4, 1.7, 2.4, 3.4)),
        lambda l, t, first: dst.categorical.decoupled(l, tau_f=1.0, tau_b=t["tau_b"]),
    ),
    "st": Arm("softmax_ste", over(FINE), ST),
    "gumbel": Arm(
        "gumbel_ste",
        over(tau=(0.5, 0.7, 1.0, 1.5, 2.0, 4.0)),
        lambda l, t, first: dst.categorical.gumbel_ste(l, tau=t["tau"]),
    ),
    "gumbel-rao": Arm(
        "gumbel_rao",
        over(tau=(0.1, 0.2, 0.5, 1.0, 2.0, 4.0)),
        lambda l, t, first: dst.categorical.gumbel_rao(l, tau=t["tau"], samples=10),
    ),
    "reinmax": Arm(
        "reinmax",
        over(tau_b=(1.0, 1.1, 1.2, 1.5, 2.0, 3.0)),
        lambda l, t, first: dst.categorical.reinmax(l, tau_f=1.0, tau_b=t["tau_b"]),
    ),
    "redge": Arm("redge", over(n=(3, 5), t_1=(0.5, 0.7, 0.9)), redge, ("n", "t_1")),
    "soft": Arm("soft", over(FINE), lambda l, t, first: dst.categorical.soft(l, tau=1.0)),
    "rloo": Arm("softmax_ste", over(FINE), ST),
    "self": Arm(
        "decoupled",
        over(FINE),
        lambda l, t, first: dst.categorical.decoupled(l, tau_f=t["f"], tau_b=t["b"]),
    ),
    "entropy": Arm("softmax_ste", over(weight=(2.0, 3.0, 4.0), falls=(0.0, 1.0)), ST),
}


def puzzles(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Full grids [count, 81], from one by permutations that keep it valid, and which cells are clues."""
    g = torch.Generator().manual_seed(seed)
    row, column = torch.arange(9).view(9, 1), torch.arange(9)
    base = (row * 3 + row // 3 + column) % 9
    grids, clues = [], []
    for _ in range(count):
        rows, columns = (
            torch.cat([3 * band + torch.randperm(3, generator=g) for band in torch.randperm(3, generator=g)])
            for _ in range(2)
        )
        grid = torch.randperm(9, generator=g)[base[rows][:, columns]]
        grids.append((grid.T if torch.rand((), generator=g) < 0.5 else grid).flatten())
        clues.append(torch.zeros(81, dtype=torch.bool).index_fill_(0, torch.randperm(81, generator=g)[:CLUES], True))
    return torch.stack(grids), torch.stack(clues)


def counts(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How often each digit is in each row, column and box, [..., 9, 9] each."""
    cells = z.view(*z.shape[:-2], 3, 3, 3, 3, 9)  # band, row in it, stack, column in it
    return cells.sum((-3, -2)).flatten(-3, -2), cells.sum((-5, -4)).flatten(-3, -2), cells.sum((-4, -2)).flatten(-3, -2)


def to_cells(rows: Tensor, columns: Tensor, boxes: Tensor) -> Tensor:
    """The sum over a cell's three units of a number of each, [..., 81, 9]."""
    lead = rows.shape[:-2]
    parts = (
        rows.view(*lead, 3, 3, 1, 1, 9),
        columns.view(*lead, 1, 1, 3, 3, 9),
        boxes.view(*lead, 3, 1, 3, 1, 9),
    )
    return (parts[0] + parts[1] + parts[2]).reshape(*lead, 81, 9)


def penalty(z: Tensor) -> Tensor:
    return sum(((c - 1) ** 2).sum((-2, -1)) for c in counts(z))


def of_penalty(z: Tensor, multilinear: bool = False) -> Tensor:
    """The penalty's derivative; of its multilinear form, in which z^2 is z, where that is asked for."""
    if multilinear:
        return 2 * (to_cells(*counts(z)) - 3 * z) - 3
    return 2 * to_cells(*(c - 1 for c in counts(z)))


def violations(z: Tensor) -> Tensor:
    return sum((c - 1).clamp(min=0).sum((-2, -1)) for c in counts(z))


def gradient(
    arm: str, l: Tensor, given: Tensor, clue: Tensor, t: dict[str, Tensor], first: Settings, left: float
) -> Tensor:
    """Of the penalty by the logits, [settings, puzzles, 81, 9]."""
    leaf = l.detach().requires_grad_()
    if arm == "rloo":
        p, total = torch.softmax(l, -1), torch.zeros_like(l)
        z = torch.where(clue, given, dst.categorical.softmax_ste(l.expand(DRAWS, *l.shape), tau=1.0))
        losses = penalty(z)
        advantage = (losses - losses.mean(0)) / (DRAWS - 1)
        for own, weight in zip(z, advantage, strict=True):
            total += weight[..., None, None] * (own - p)
        return total.masked_fill(clue, 0.0)
    z = ARMS[arm].draw(leaf, t, first)
    g = of_penalty(torch.where(clue, given, z.detach()), arm == "entropy").masked_fill(clue, 0.0)
    if arm == "entropy":
        p = torch.softmax(leaf, -1)
        weight = t["weight"] * torch.where(t["falls"] > 0, left, 1.0)
        return torch.autograd.grad((z, p), leaf, (g, (2 * weight * p.detach()).masked_fill(clue, 0.0)))[0]
    return torch.autograd.grad(z, leaf, g)[0]


def train(arm: str, settings: list[Settings], grids: Tensor, clue: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The logits at the end, and a grid drawn from them as the arm draws; both [settings, puzzles, 81, 9]."""
    device = grids.device
    given, clue = torch.nn.functional.one_hot(grids, 9).float(), clue.unsqueeze(-1)
    t = {name: torch.tensor([one[name] for one in settings], device=device).view(-1, 1, 1, 1) for name in settings[0]}
    l = torch.zeros(len(settings), *given.shape, device=device)
    mean, square = torch.zeros_like(l), torch.zeros_like(l)
    rule = dst.SelfTempered(steps=steps)
    state = rule.start((len(settings),), device)
    for step in range(1, steps + 1):
        if arm == "self":
            (t["f"], t["b"]), state = rule(state, l, run_dims=1, batch_dims=0)
        g = gradient(arm, l, given, clue, t, settings[0], 1 - step / steps)
        mean.lerp_(g, 0.1)
        square.mul_(0.999).addcmul_(g, g, value=0.001)
        l -= t["lr"] * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
    with torch.no_grad():
        drawn = ST(l, t, settings[0]) if arm == "soft" else ARMS[arm].draw(l, t, settings[0])
    best = torch.nn.functional.one_hot(l.argmax(-1), 9).float()
    return torch.where(clue, given, best), torch.where(clue, given, drawn)


def records(
    phase: str, arm: str, settings: list[Settings], steps: int, count: int, device: str
) -> list[dict[str, Any]]:
    """A row for each setting and repetition: those of equal shape are trained together."""
    seed, most = PUZZLES[phase]
    grids, clue = (x.to(device) for x in puzzles(seed, min(count, most)))
    groups: dict[tuple[float, ...], list[Settings]] = {}
    for one in settings:
        groups.setdefault(tuple(one[name] for name in ARMS[arm].shared), []).extend([one] * REPETITIONS[phase])
    rows = []
    for number, together in enumerate(groups.values()):
        torch.manual_seed(1000 * list(ARMS).index(arm) + 10 * number + seed)
        start = time.perf_counter()
        best, drawn = train(arm, together, grids, clue, steps)
        solved, by_draw = violations(best) == 0, violations(drawn) == 0
        means = [x.float().mean(-1).tolist() for x in (solved, by_draw, violations(best), violations(drawn))]
        seconds = time.perf_counter() - start
        for i, one in enumerate(together):
            bits = "".join("1" if bit else "0" for bit in solved[i].tolist())
            rows.append(
                {
                    "task": "sudoku",
                    "phase": phase,
                    "arm": arm,
                    "estimator": ARMS[arm].estimator,
                    "setting": json.dumps(one),
                    "seed": i % REPETITIONS[phase],
                    "problems": len(bits),
                    "steps": steps,
                    "history.solved_argmax": means[0][i],
                    "history.solved_drawn": means[1][i],
                    "history.violations_argmax": means[2][i],
                    "history.violations_drawn": means[3][i],
                    "provenance.each": f"x{int(bits, 2):0{-(-len(bits) // 4)}x}" if phase == "judge" else "",
                    "provenance.seconds": seconds,
                }
            )
    return rows


def chosen(rows: list[dict[str, Any]], arm: str) -> Settings:
    """The setting of most tuning puzzles solved."""
    own = [(row, json.loads(row["setting"])) for row in rows if (row["arm"], row["phase"]) == (arm, "tune")]
    solved = "history.solved_argmax", "history.solved_drawn"
    return max(own, key=lambda one: (*(float(one[0][name]) for name in solved), -one[1]["lr"]))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("phase", choices=["tune", "judge"])
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--puzzles", type=int, default=10**6)
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for arm in given.arms:
        settings = list(ARMS[arm].settings)
        if given.phase == "judge":
            settings = [chosen(runs.read([given.out]), arm)]
        for row in records(given.phase, arm, settings, given.steps, given.puzzles, device):
            runs.write(given.out, COLUMNS, row)


if __name__ == "__main__":
    main()
