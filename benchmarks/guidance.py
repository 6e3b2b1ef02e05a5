"""Guidance of a masked model by gradients on the logits of each step: Sudoku with a prior, XOR and AND of pixels.

    python benchmarks/guidance.py sudoku-model --out DIR                       trains a masked model of grids
    python benchmarks/guidance.py runs --models DIR --data DIR --out DIR       tuning, then judging on fresh problems

Several processes with one --out share the work. At each step of a rollout, as ReDGE, G2D2 and APS do, Adam moves the
logits q of all masked tokens from the model's: `dst.masked.guide`, or the same by the score function. Then some tokens
are drawn and stay.

    sudoku    the grids of sudoku.py with 30 clues; a transformer of 4 layers of width 128, trained on generated grids
              for 5,000 steps; 20 steps, 40 of Adam in each; penalty sum (count - 1)^2; at the end of a
              step the argmax is taken, as ReDGE does
    xor, and  SGDD's problems (Chu et al., 2025): binary MNIST of 32 x 32, XOR of 512 pairs of pixels, or AND of 4,096,
              known exactly; penalty the number of pairs that differ, in its multilinear form; 20 steps, 20 of Adam in
              each; tokens are drawn. SGDD's prior is uniform SEDD, ours masked: its published numbers are not of this
              prior

How it is judged, written down before any run:
    Each arm has twelve settings, or as many as every arm has had when the time for tuning is over. Tuning has problems
    of its own (256 puzzles, 250 images of the training set). Chosen is the setting that solves most puzzles, of equal
    ones that with fewest violations, or the highest PSNR.
    Judged are 500 fresh puzzles, and the first 1,000 test images, three repetitions.
    "Better": at least 2 points more of solved puzzles, or of images whose class is kept (a classifier gives the image
    the class that it gives the truth), and more than two standard errors of the paired differences between problems,
    means over the repetitions. Otherwise "level", or "worse" by the same rule.
    G1 sudoku: separate temperatures help if Decoupled ST, tau_b apart from 1, is better than ratio 1 and than RLOO of
        8 draws.
    G2 xor, G3 and: the same. The penalty is multilinear, so that ratio 1 has no bias at the first step of Adam; the
        prediction is that ratio 1 is not worse.
    A first round of tuning, cut short, had models of grids of 200 and 1,000 steps too: they solve 2% at most, with
    guidance or without, and were left out before anything was judged. Its settings of XOR are not run again.
    G4: a published number is reached if an arm's mean PSNR is not below SGDD's (20.17 dB XOR, 17.25 dB AND).
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import runs
import sudoku
import torch
import torch.nn.functional as F
from masked_images import LENGTH, Classifier, Network, load, read
from torch import Tensor, nn

import decoupled_st as dst

PRIOR = 5000
"""Training steps of the model of grids."""
WIDTH, BATCH, DRAWS, REPETITIONS = 128, 512, 8, 3
STEPS, INNER = 20, {"sudoku": 40, "xor": 20, "and": 20}
PAIRS = {"xor": 512, "and": 4096}
COUNTS = {"tune": {"sudoku": 256, "xor": 250, "and": 250}, "judge": {"sudoku": 500, "xor": 1000, "and": 1000}}
COLUMNS = (
    "task",
    "problem",
    "phase",
    "prior",
    "arm",
    "estimator",
    "estimator.tau_f",
    "estimator.tau_b",
    "estimator.tau",
    "lr",
    "weight",
    "seed",
    "problems",
    "history.solved",
    "history.violations",
    "history.psnr",
    "history.accuracy",
    "history.error",
    "provenance.each",
)
Setting = dict[str, float]
Reward = Callable[[Tensor], Tensor]


def over(**values: tuple[float, ...]) -> list[Setting]:
    settings: list[Setting] = [{}]
    for name, several in values.items():
        settings = [{**one, name: value} for one in settings for value in several]
    return settings


ONE = {"lr": (0.1, 0.3, 1.0), "weight": (0.5, 2.0, 6.0, 20.0)}
TWO = {"lr": (0.3, 1.0), "weight": (2.0, 6.0)}
ARMS = {
    "st": over(tau_b=(1.0,), **ONE),
    "decoupled": over(tau_b=(0.5, 1.7, 3.0), **TWO),
    "gumbel": over(tau=(0.5, 1.0, 2.0), **TWO),
    "reinmax": over(tau_b=(1.0, 1.5, 2.0), **TWO),
    "soft": over(tau=(1.0,), **ONE),
    "rloo": over(tau_b=(1.0,), **ONE),
}
"""Twelve settings each."""
NAMES = {"st": "softmax_ste", "gumbel": "gumbel_ste", "rloo": "softmax_ste"}


def estimator(arm: str, setting: Setting) -> dst.Estimator:
    if arm == "soft":
        return dst.Soft(tau=1.0)
    if arm == "gumbel":
        return dst.GumbelSTE(tau=setting["tau"])
    kind = dst.ReinMax if arm == "reinmax" else dst.Decoupled
    return kind(tau_f=1.0, tau_b=setting["tau_b"])


class Grids(nn.Module):
    """From states [B, 81, 10] to logits [B, 81, 9]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(10, WIDTH), nn.Parameter(0.02 * torch.randn(81, WIDTH))
        layer = lambda: nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)  # noqa: E731
        self.body = nn.Sequential(*(layer() for _ in range(4)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9))

    def forward(self, state: Tensor) -> Tensor:
        return self.body(self.embed(state) + self.place)


def grids(count: int, device: str) -> Tensor:
    """Full grids [count, 81], from one by permutations of bands, rows, stacks, columns and digits, as in sudoku.py."""
    order = lambda *shape: torch.rand(count, *shape, device=device).argsort(-1)  # noqa: E731
    row, column = torch.arange(9, device=device).view(9, 1), torch.arange(9, device=device)
    base = ((row * 3 + row // 3 + column) % 9).expand(count, 9, 9)
    for _ in range(2):
        places = (3 * order(3).unsqueeze(-1) + order(3, 3)).flatten(1)
        base = base.gather(1, places.unsqueeze(-1).expand(-1, 9, 9)).transpose(1, 2)
    turned = torch.where(torch.rand(count, 1, 1, device=device) < 0.5, base, base.transpose(1, 2)).flatten(1)
    return order(9).gather(1, turned)


def train_grids(out: Path, device: str, quick: bool) -> None:
    torch.manual_seed(0)
    model = Grids().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, (3 if quick else PRIOR) + 1):
        ids = grids(8 if quick else BATCH, device)
        masked = torch.rand(ids.shape, device=device) < torch.rand(len(ids), 1, device=device)
        logits = model(dst.masked.from_ids(ids.masked_fill(masked, 9), 9))
        loss = -dst.masked.log_prob(logits, ids, masked).sum() / masked.sum().clamp_min(1)
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 200)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 500 == 0:
            print(f"grids {step} {loss.item():.3f} nats a masked cell", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    torch.save({k: v.half() for k, v in model.state_dict().items()}, out / "sudoku.pt")


def guided_by_score(logits: Tensor, state: Tensor, reward: Reward, inner: int, lr: float) -> Tensor:
    """`guide` by RLOO: several draws of the masked tokens in each step of Adam."""
    l, masked = logits.detach(), state[..., -1] == 1
    with torch.enable_grad():
        q = l.clone().requires_grad_()
        optimiser = torch.optim.Adam([q], lr)
        for _ in range(inner):
            z = dst.categorical.softmax_ste(q.detach().expand(DRAWS, *q.shape), tau=1.0)
            z = torch.where(masked.unsqueeze(-1), z, state[..., :-1])
            log_p = torch.stack([dst.masked.log_prob(q, one.argmax(-1), masked) for one in z])
            with torch.no_grad():
                rewards = torch.stack([reward(one) for one in z])
            loss = dst.masked.kl(q, l, masked).sum() - dst.score_function.rloo(rewards, log_p).mean(0).sum()
            (q.grad,) = torch.autograd.grad(loss, q)
            optimiser.step()
    return q.detach()


@torch.no_grad()
def solve(model: nn.Module, state: Tensor, reward: Reward, arm: str, setting: Setting, problem: str) -> Tensor:
    inner, lr = INNER[problem], setting.get("lr", 0.0)
    weighted = lambda x: setting["weight"] * reward(x)  # noqa: E731

    def guided(x: Tensor) -> Tensor:
        l = model(x)
        if arm == "none":
            return l
        if arm == "rloo":
            return guided_by_score(l, x, weighted, inner, lr)
        return dst.masked.guide(l, x, weighted, estimator(arm, setting), steps=inner, lr=lr)

    draw = dst.Decoupled(tau_f=0.0, tau_b=1.0) if problem == "sudoku" else dst.SoftmaxSTE(tau=1.0)
    return dst.masked.rollout(guided, state, STEPS, draw).ids


def measured(problem: str) -> tuple[Tensor, Tensor]:
    """SGDD's pairs of pixels: its generator, its seed."""
    one, other = torch.randint(0, LENGTH, (2, PAIRS[problem]), generator=torch.Generator().manual_seed(0))
    return one, other


def combined(problem: str, x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    a, b = x[..., one], x[..., other]
    return a * b if problem == "and" else a + b - 2 * a * b


def run(problem: str, phase: str, prior: int, arm: str, setting: Setting, seed: int, given: argparse.Namespace) -> None:
    start, device = time.perf_counter(), given.device
    count = 4 if given.quick else COUNTS[phase][problem]
    torch.manual_seed(1000 * seed + list(ARMS).index(arm) if arm in ARMS else seed)
    row: dict[str, Any] = {"problem": problem, "phase": phase, "prior": prior, "arm": arm, "seed": seed}
    row |= {
        "task": "masked-guidance",
        "problems": count,
        "lr": setting.get("lr", ""),
        "weight": setting.get("weight", ""),
    }
    row |= {"estimator": NAMES.get(arm, arm if arm != "none" else "softmax_ste")}
    row |= {f"estimator.{name}": setting[name] for name in ("tau", "tau_b") if name in setting}
    if "tau_b" in setting:
        row["estimator.tau_f"] = 1.0
    if problem == "sudoku":
        model = Grids().to(device)
        model.load_state_dict(torch.load(given.models / "sudoku.pt", map_location=device, weights_only=True))
        truth, clue = (x.to(device) for x in sudoku.puzzles({"tune": 11, "judge": 12}[phase], count))
        state = dst.masked.from_ids(truth.masked_fill(~clue, 9), 9)
        ids = solve(model, state, lambda x: -sudoku.penalty(x), arm, setting, problem)
        left = sudoku.violations(F.one_hot(ids, 9).float())
        each = left == 0
        row |= {"history.solved": each.float().mean().item(), "history.violations": left.mean().item()}
    else:
        network, judge, truth = images(phase, count, given)
        one, other = (x.to(device) for x in measured(problem))
        y = combined(problem, truth.float(), one, other)
        differ = lambda x: (y + (1 - 2 * y) * combined(problem, x[..., 1], one, other)).sum(-1)  # noqa: E731
        state = dst.masked.start(count, LENGTH, 2, device=device)
        ids = solve(network, state, lambda x: -differ(x), arm, setting, problem)
        hot, true = (F.one_hot(x, 2).float() for x in (ids, truth))
        each = judge(hot).argmax(-1) == judge(true).argmax(-1)
        psnr = -10 * ((ids != truth).float().mean(-1) + 1e-8).log10()
        row |= {"history.psnr": psnr.mean().item(), "history.accuracy": each.float().mean().item()}
        row |= {"history.error": (differ(hot) / PAIRS[problem]).mean().item()}
        if phase == "judge" and seed == 100:
            folder = given.out / "samples"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(torch.stack((truth[:24], ids[:24])).to("cpu", torch.uint8), folder / f"{problem}-{arm}.pt")
    bits = "".join("1" if bit else "0" for bit in each.tolist())
    row["provenance.each"] = f"x{int(bits, 2):0{-(-len(bits) // 4)}x}" if phase == "judge" else ""
    row["provenance.seconds"] = time.perf_counter() - start
    runs.write(given.out / "guidance.runs.csv", COLUMNS, row)


def images(phase: str, count: int, given: argparse.Namespace) -> tuple[Network, Classifier, Tensor]:
    """The masked model, classifier B, and the images: the last of the training set, or the first of the test set."""
    if phase not in given.loaded:
        network, _, judge = load(given.models, "mnist", given.device)
        ids, _ = read(given.data, "mnist", "train" if phase == "tune" else "t10k")
        given.loaded[phase] = network, judge, (ids[-count:] if phase == "tune" else ids[:count]).to(given.device)
    return given.loaded[phase]


def key(problem: str, arm: str, setting: Setting) -> tuple[str, ...]:
    """A setting of an arm as its row has it."""
    return problem, arm, *(f"{setting[name]:g}" if name in setting else "" for name in ("tau_b", "tau", "lr", "weight"))


def key_of(row: dict[str, str]) -> tuple[str, ...]:
    return row["problem"], row["arm"], row["estimator.tau_b"], row["estimator.tau"], row["lr"], row["weight"]


def chosen(rows: list[dict[str, str]], problem: str) -> dict[str, Setting]:
    """Each arm's setting of most solved puzzles, then fewest violations, or of the highest PSNR; of as many settings as
    every arm has tried."""
    known = {key_of(row): row for row in rows}
    tried = {arm: [one for one in settings if key(problem, arm, one) in known] for arm, settings in ARMS.items()}
    count = min(map(len, tried.values()))

    def value(arm: str, setting: Setting) -> tuple[float, float]:
        row = known[key(problem, arm, setting)]
        if problem == "sudoku":
            return float(row["history.solved"]), -float(row["history.violations"])
        return float(row["history.psnr"]), 0.0

    return {arm: max(settings[:count], key=lambda one: value(arm, one)) for arm, settings in tried.items()}


def every_run(problem: str, given: argparse.Namespace) -> None:
    """Tuning shared with other processes; when all of it is done, or its time is over, judging shared with them."""
    prior = PRIOR if problem == "sudoku" else 0

    def tuned(files: list[Path]) -> list[dict[str, str]]:
        rows = runs.read(files)
        return [r for r in rows if (r["problem"], r["phase"], r["prior"]) == (problem, "tune", str(prior))]

    here, before = [given.out / "guidance.runs.csv"], {key_of(row) for row in tuned(given.known)}
    every = [("none", {}), *((arm, settings[i]) for i in range(12) for arm, settings in ARMS.items())]
    tasks, folder = [task for task in every if key(problem, *task) not in before], given.out / f"taken-tune-{problem}"
    for arm, setting in runs.shared(tasks, folder, 0.6 * given.seconds):
        run(problem, "tune", prior, arm, setting, 0, given)
    if not runs.wait(folder, lambda: len({key_of(row) for row in tuned(here)} - before), given.seconds):
        return
    rows = tuned([*given.known, *here])
    if not {row["arm"] for row in rows} >= set(ARMS):
        return
    picks = {"none": {}, **chosen(rows, problem)}
    print(problem, picks, flush=True)
    judging = [(arm, one, seed) for seed in range(100, 100 + REPETITIONS) for arm, one in picks.items()]
    for arm, one, seed in runs.shared(judging, given.out / f"taken-judge-{problem}", given.seconds):
        run(problem, "judge", prior, arm, one, seed, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["sudoku-model", "runs"])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="tables with settings that were tried before")
    parser.add_argument("--problems", nargs="+", default=list(INNER))
    parser.add_argument("--seconds", type=float, default=math.inf, help="no run begins later than that")
    parser.add_argument("--quick", action="store_true", help="four problems, to see that it runs")
    given = parser.parse_args()
    given.device, given.loaded = "cuda" if torch.cuda.is_available() else "cpu", {}
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    if given.what == "sudoku-model":
        train_grids(given.out, given.device, given.quick)
        return
    for problem in given.problems:
        every_run(problem, given)


if __name__ == "__main__":
    main()
