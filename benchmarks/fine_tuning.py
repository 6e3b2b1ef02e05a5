"""Fine-tuning a masked model of images by a classifier's reward: what a gradient through the tokens is worth.

    python benchmarks/fine_tuning.py runs --models DIR --data DIR --out DIR         tuning, then judging
    python benchmarks/fine_tuning.py gradients --models DIR --data DIR --out DIR    each arm's, at the model before

Several processes with one --out share the work. The models are those of masked_images.py. What is maximised is

    J = E[log p(class | x)] - KL(path || path of the model before)        in nats, T = 16 steps, random order

with p of classifier A: its maximum over all distributions is J* = log E_before[p(class | x)], at the law of the model
before given the class, which resampling of its draws shows. Classes are "4" of MNIST and "bag" of Fashion-MNIST.

How it is judged, written down before any run:
    Each arm has four settings, or as many as every arm has had when the time for tuning is over; one run each on seed 0
    with 120 updates of 128 images; chosen is the highest J at the end, by classifier A. GRPO has three times as many
    updates, since one of its updates calls networks 31 times where one of the others does 96 times (a backward pass
    counts as two calls).
    Chosen settings are run again on fresh seeds from 100, as many whole rounds over all arms as the time allows, at
    least three. Judged is J by classifier B, which no arm has seen, on 2,048 draws of each run. "Better": a
    higher mean by at least 0.1 nats and by more than two standard errors of the difference over the seeds, otherwise
    "level", or "worse" by the same rule.
    F1: separate temperatures help if the better of the Decoupled arms, (1, tau_b), is better than the better of the
        arms of ratio 1 and better than RLOO. Which is "the better" is said by tuning.
    F2: a gradient through the tokens is worth its reward's gradient if st-tokens is better than RLOO, and than grpo.
    F3: one-hot states lose nothing if the best arm of st and decoupled by tuning is not worse than drakes.
    F4: detached inputs lose nothing if st-tokens is not worse than st-all.
    The prediction: ratios above 1 gain little in J; straight-through is better than RLOO at 784 pixels.
A first attempt, with a U-Net and 32 steps, had finished no run when its time was over.
"""

import argparse
import copy
import math
import time
from pathlib import Path
from typing import Any

import runs
import torch
from masked_images import CROPPED, LEVELS, Classifier, Perceptron, cropped, load, read
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import decoupled_st as dst

STEPS, BATCH, UPDATES, DRAWS, TRUTH, ROUNDS = 16, 128, 120, 2048, 16384, 5
CLASS = {"mnist": 4, "fashion-mnist": 8}
CLIP, INNER, MORE = 0.2, 3, 3
"""Of grpo: the ratio's clip, passes per batch, and updates for one of the others."""
Setting = dict[str, float]


RATES = (3e-5, 1e-4, 3e-4, 6e-4)


def rates(*several: float) -> list[Setting]:
    return [{"tau_b": 1.0, "lr": lr} for lr in several]


def pairs(name: str, *values: float) -> list[Setting]:
    return [{name: value, "lr": lr} for value in values for lr in (1e-4, 3e-4)]


ARMS: dict[str, list[Setting]] = {
    "decoupled-tokens": pairs("tau_b", 1.5, 3.0),
    "st-tokens": rates(*RATES),
    "rloo": rates(*RATES),
    "drakes": pairs("tau", 0.5, 1.0),
    "decoupled-all": pairs("tau_b", 1.5, 3.0),
    "st-all": rates(*RATES),
    "grpo": rates(*RATES),
}
COLUMNS = (
    "task",
    "dataset",
    "phase",
    "arm",
    "estimator",
    "estimator.tau_f",
    "estimator.tau_b",
    "estimator.tau",
    "lr",
    "seed",
    "steps",
    "step",
    "status",
    "history.objective_a",
    "history.objective_b",
    "history.reward_a",
    "history.reward_b",
    "history.kl",
    "history.accuracy_b",
    "history.frechet_truth",
    "history.frechet_test",
    "history.train_reward",
)
GRADIENT_COLUMNS = (
    "task",
    "dataset",
    "arm",
    "estimator",
    "estimator.tau_f",
    "estimator.tau_b",
    "estimator.tau",
    "seed",
    "history.cosine",
    "history.norm",
    "history.reference_norm",
)


class Problem:
    """A data set with its models, its reward and the truth by resampling."""

    def __init__(self, name: str, given: argparse.Namespace, device: str) -> None:
        self.name, self.levels, self.device = name, LEVELS[name], device
        self.before, self.a, self.b = load(given.models, name, device, Perceptron)
        ids, labels = read(given.data, name, "t10k")
        self.few = given.quick
        test = cropped(ids[labels == CLASS[name]]).to(device)
        self.test = self.features(test)
        draws, _, r = self.sample(self.before, TRUTH)
        self.best = (r.logsumexp(0) - math.log(len(r))).item()
        pick = torch.multinomial(r.softmax(0), DRAWS, replacement=True)
        self.truth_ids, self.truth = draws[pick], self.features(draws[pick])
        self.truth_kl = (r.softmax(0) * r).sum().item() - self.best

    def start(self, batch: int) -> Tensor:
        return dst.masked.start(batch, CROPPED, self.levels, device=self.device)

    @torch.no_grad()
    def draw(self, model: Perceptron, batch: int) -> dst.masked.Rollout:
        return dst.masked.rollout(model, self.start(batch), STEPS, dst.SoftmaxSTE(tau=1.0), reference=self.before)

    def sample(self, model: Perceptron, count: int) -> tuple[Tensor, float, Tensor]:
        """Images, the mean divergence of their paths, and their rewards by classifier A."""
        out = [self.draw(model, 4 if self.few else 512) for _ in range(2 if self.few else count // 512)]
        kl = torch.cat([one.kl for one in out if one.kl is not None]).mean().item()
        return torch.cat([one.ids for one in out]), kl, torch.cat([self.reward(self.a, one.x0) for one in out]).double()

    def reward(self, judge: Classifier, x0: Tensor) -> Tensor:
        return judge(x0).log_softmax(-1)[:, CLASS[self.name]]

    @torch.no_grad()
    def features(self, ids: Tensor) -> Tensor:
        hot = [torch.nn.functional.one_hot(part, self.levels).float() for part in ids.split(512)]
        return torch.cat([self.b.features(part) for part in hot]).double()

    def judged(self, ids: Tensor, kl: float) -> dict[str, float]:
        """What is known of images, by both classifiers."""
        hot = [torch.nn.functional.one_hot(part, self.levels).float() for part in ids.split(512)]
        a, b = (torch.cat([judge(part).log_softmax(-1) for part in hot]) for judge in (self.a, self.b))
        kind, features = CLASS[self.name], self.features(ids)
        reward_a, reward_b = a[:, kind].mean().item(), b[:, kind].mean().item()
        return {
            "history.objective_a": reward_a - kl,
            "history.objective_b": reward_b - kl,
            "history.reward_a": reward_a,
            "history.reward_b": reward_b,
            "history.kl": kl,
            "history.accuracy_b": (b.argmax(-1) == kind).float().mean().item(),
            "history.frechet_truth": frechet(features, self.truth),
            "history.frechet_test": frechet(features, self.test),
        }


def frechet(x: Tensor, y: Tensor) -> float:
    """Between normal laws with the features' means and covariances."""
    a, b = torch.cov(x.T), torch.cov(y.T)
    values, vectors = torch.linalg.eigh(a)
    root = vectors * values.clamp_min(0).sqrt() @ vectors.T
    cross = torch.linalg.eigvalsh(root @ b @ root).clamp_min(0).sqrt().sum()
    return ((x.mean(0) - y.mean(0)).square().sum() + a.trace() + b.trace() - 2 * cross).item()


def soft_rollout(problem: Problem, model: Perceptron, tau: float) -> tuple[Tensor, Tensor]:
    """DRAKES: the state stays soft between steps, the mask is one of the softmax's categories; and the divergence at
    what is masked still, weighed by the probability of being revealed (DRAKES' own is 0 where states are one-hot)."""
    before, x = problem.before, problem.start(BATCH)
    total = torch.zeros(BATCH, device=x.device)

    def step(x: Tensor, left: int) -> tuple[Tensor, Tensor]:
        l = model(x)
        p = torch.cat((l.softmax(-1) / left, torch.full_like(x[..., :1], 1 - 1 / left)), -1)
        n, m = dst.categorical.gumbel_soft(p.clamp_min(1e-12).log(), tau=tau), x[..., -1:]
        with torch.no_grad():
            theirs = before(x)
        each = (l.softmax(-1) * (l.log_softmax(-1) - theirs.log_softmax(-1))).sum(-1)
        return (1 - m) * x + m * n, (each * m.detach().squeeze(-1)).sum(-1) / left

    for left in range(STEPS, 0, -1):
        x, kl = checkpoint(step, x, left, use_reentrant=False)
        total = total + kl
    x = x[..., :-1]
    hard = torch.nn.functional.one_hot(x.argmax(-1), problem.levels).to(x)
    return hard + (x - x.detach()), total


def value_of(
    arm: str, problem: Problem, model: Perceptron, setting: Setting, beta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The objective of a batch with the arm's gradient, and the rewards."""
    if arm == "drakes":
        x0, kl = soft_rollout(problem, model, setting["tau"])
        r = problem.reward(problem.a, x0)
        return (r - beta * kl).mean(), r
    estimator = dst.Decoupled(tau_f=1.0, tau_b=setting["tau_b"])
    through = "all" if arm.endswith("all") else "tokens"
    out = dst.masked.rollout(model, problem.start(BATCH), STEPS, estimator, through=through, reference=problem.before)
    kl = out.kl
    assert kl is not None
    if arm == "rloo":
        r = problem.reward(problem.a, out.x0.detach())
        returns = r - beta * kl.detach()
        return dst.masked.expected_reward(returns, out, by="rloo") - beta * (kl - kl.detach()).mean(), r
    r = problem.reward(problem.a, out.x0)
    return dst.masked.expected_reward(r, out) - beta * kl.mean(), r


def grpo_update(problem: Problem, model: Perceptron, optimiser: torch.optim.Optimizer) -> Tensor:
    """A batch of draws, and some passes with a one-step log probability: that of pixels masked again at random, all in
    one call, as in diffu-GRPO and UniGRPO. Advantages are the rewards less their mean, so that the target is J."""
    K, L = problem.levels, CROPPED
    with torch.no_grad():
        out = dst.masked.rollout(model, problem.start(BATCH), STEPS, dst.SoftmaxSTE(tau=1.0))
    r = problem.reward(problem.a, out.x0)
    advantage = (r - r.mean()).unsqueeze(-1)
    share = torch.rand(INNER, BATCH, 1, device=r.device)
    masks = torch.rand(INNER, BATCH, L, device=r.device) < share
    states = [dst.masked.from_ids(out.ids.masked_fill(masked, K), K) for masked in masks]
    picked = lambda l: l.log_softmax(-1).gather(-1, out.ids.unsqueeze(-1)).squeeze(-1)  # noqa: E731
    with torch.no_grad():
        old = [picked(model(state)) for state in states]
        theirs = [problem.before(state) for state in states]
    for masked, state, log_p, reference in zip(masks, states, old, theirs, strict=True):
        l = model(state)
        ratio = (picked(l) - log_p).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        count = masked.sum(-1).clamp_min(1)
        kl = dst.masked.kl(l, reference, masked)
        step(-(L * ((gain * masked).sum(-1) - kl) / count).mean(), model, optimiser)
    return r


def step(loss: Tensor, model: Perceptron, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def train(problem: Problem, phase: str, arm: str, setting: Setting, seed: int, given: argparse.Namespace) -> None:
    """A run and its rows; one whose logits or rewards are no numbers any more has diverged."""
    row = {"task": "masked-rewards", "dataset": problem.name, "phase": phase, "arm": arm, **of(arm, setting)}
    row |= {"lr": setting["lr"], "seed": seed, "steps": 2 if given.quick else UPDATES}
    try:
        fine_tuned(problem, arm, setting, row, given)
    except (RuntimeError, ValueError) as error:
        print(f"diverged: {error}", flush=True)
        runs.write(given.out / "fine-tuning.runs.csv", COLUMNS, {**row, "status": "diverged"})


def fine_tuned(problem: Problem, arm: str, setting: Setting, row: dict[str, Any], given: argparse.Namespace) -> None:
    seed, updates = row["seed"], row["steps"]
    torch.manual_seed(1000 * seed + list(ARMS).index(arm))
    start = time.perf_counter()
    model = copy.deepcopy(problem.before).requires_grad_()
    optimiser = torch.optim.Adam(model.parameters(), setting["lr"])
    for update in range(1, updates + 1):
        if arm == "grpo":
            for _ in range(MORE):
                r = grpo_update(problem, model, optimiser)
        else:
            value, r = value_of(arm, problem, model, setting)
            step(-value, model, optimiser)
        if update % max(1, updates // 2):
            continue
        ids, kl, _ = problem.sample(model, DRAWS)
        runs.write(
            given.out / "fine-tuning.runs.csv",
            COLUMNS,
            {
                **row,
                "step": update,
                **problem.judged(ids, kl),
                "history.train_reward": r.mean().item(),
                "provenance.seconds": time.perf_counter() - start,
            },
        )
    name = f"{row['phase']}-{arm}-{seed}-{setting.get('tau_b', setting.get('tau'))}-{setting['lr']:g}"
    keep(given, problem, name, ids)


def of(arm: str, setting: Setting) -> dict[str, Any]:
    """The columns that say which estimator an arm is."""
    if arm == "drakes":
        return {"estimator": "gumbel_soft", "estimator.tau": setting["tau"]}
    name = "decoupled" if arm.startswith("decoupled") else "softmax_ste"
    return {"estimator": name, "estimator.tau_f": 1.0, "estimator.tau_b": setting["tau_b"]}


def keep(given: argparse.Namespace, problem: Problem, name: str, ids: Tensor) -> None:
    """Some images, for pictures."""
    folder = given.out / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(ids[:32].to("cpu", torch.uint8), folder / f"{problem.name}-{name}.pt")


def reference_rows(problem: Problem, given: argparse.Namespace) -> None:
    """The model before, and its draws resampled by their rewards."""
    start = time.perf_counter()
    ids = problem.sample(problem.before, DRAWS)[0]
    for arm, images, kl in (("before", ids, 0.0), ("truth", problem.truth_ids, problem.truth_kl)):
        row = {"task": "masked-rewards", "dataset": problem.name, "phase": "truth", "arm": arm, "seed": 0}
        row |= {"estimator": "softmax_ste", "estimator.tau_f": 1.0, "estimator.tau_b": 1.0, "steps": 0, "step": 0}
        row |= {**problem.judged(images, kl), "provenance.seconds": time.perf_counter() - start}
        runs.write(given.out / "fine-tuning.runs.csv", COLUMNS, row)
        keep(given, problem, arm, images)
    print(f"{problem.name}: J* = {problem.best:.3f}", flush=True)


def gradients(problem: Problem, given: argparse.Namespace) -> None:
    """Cosines of single batches with RLOO's mean gradient of the reward, corrected for that mean's own noise."""
    model = copy.deepcopy(problem.before).requires_grad_()
    weights = list(model.parameters())

    def gradient(arm: str, setting: Setting) -> Tensor:
        value, _ = value_of(arm, problem, model, setting, beta=0.0)
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, weights)]).double()

    torch.manual_seed(7)
    many, batches = (2, 2) if given.quick else (64, 6)
    halves = [sum(gradient("rloo", {"tau_b": 1.0}) for _ in range(many // 2)) / (many // 2) for _ in range(2)]
    true_norm = (halves[0] @ halves[1]).clamp_min(0).sqrt()
    mean = (halves[0] + halves[1]) / 2
    for arm in ("st-tokens", "decoupled-tokens", "st-all", "decoupled-all", "drakes", "rloo"):
        for value in {"decoupled": (0.5, 1.5, 3.0), "drakes": (0.5, 1.0)}.get(arm.split("-")[0], (1.0,)):
            setting = {"tau" if arm == "drakes" else "tau_b": value}
            for seed in range(batches):
                start = time.perf_counter()
                torch.manual_seed(100 + seed)
                g = gradient(arm, setting)
                row = {"task": "masked-rewards-gradients", "dataset": problem.name, "arm": arm, **of(arm, setting)}
                row |= {"seed": seed, "history.cosine": (g @ mean / (g.norm() * true_norm)).item()}
                row |= {"history.norm": g.norm().item(), "history.reference_norm": true_norm.item()}
                row |= {"provenance.seconds": time.perf_counter() - start}
                runs.write(given.out / "fine-tuning-gradients.runs.csv", GRADIENT_COLUMNS, row)


def ended(row: dict[str, str]) -> bool:
    """True of the last row of a tuning run."""
    return row["phase"] == "tune" and (row["step"] == row["steps"] or row["status"] == "diverged")


def chosen(rows: list[dict[str, str]]) -> dict[str, Setting]:
    """Each arm's setting of the highest J by classifier A at the end of tuning, of as many as every arm has tried."""
    tried = {arm: [row for row in rows if row["arm"] == arm and ended(row)] for arm in ARMS}
    count = min(map(len, tried.values()))
    picks = {}
    for arm, own in tried.items():
        value = lambda row: float(row["history.objective_a"] or "-inf")  # noqa: E731
        best, name = max(own[:count], key=value), "tau" if arm == "drakes" else "tau_b"
        picks[arm] = {name: float(best[f"estimator.{name}"]), "lr": float(best["lr"])}
    return picks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["runs", "gradients"])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(LEVELS))
    parser.add_argument("--seconds", type=float, default=math.inf, help="no run begins later than that")
    parser.add_argument("--quick", action="store_true", help="two updates, to see that it runs")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    for name in given.datasets:
        torch.manual_seed(5)
        problem = Problem(name, given, device)
        (gradients if given.what == "gradients" else every_run)(problem, given)


def every_run(problem: Problem, given: argparse.Namespace) -> None:
    """Tuning shared with other processes; when all of it is done, or its time is over, judging shared with them."""
    name, table = problem.name, given.out / "fine-tuning.runs.csv"
    tuning = [(arm, settings[i]) for i in (1, 2, 0, 3) for arm, settings in ARMS.items() if i < len(settings)]
    folder = given.out / f"taken-tune-{name}"
    for task in runs.shared(["references", *tuning], folder, 0.6 * given.seconds):
        if isinstance(task, str):
            reference_rows(problem, given)
        else:
            train(problem, "tune", *task, 0, given)

    def own() -> list[dict[str, str]]:
        return [row for row in runs.read([table]) if row["dataset"] == name]

    if not runs.wait(folder, lambda: sum(map(ended, own())) + any(r["arm"] == "truth" for r in own()), given.seconds):
        return
    if {row["arm"] for row in own() if ended(row)} != set(ARMS):
        return
    picks = chosen(own())
    print(picks, flush=True)
    judging = [(arm, setting, seed) for seed in range(100, 100 + ROUNDS) for arm, setting in picks.items()]
    for arm, setting, seed in runs.shared(judging, given.out / f"taken-judge-{name}", given.seconds):
        train(problem, "judge", arm, setting, seed, given)


if __name__ == "__main__":
    main()
