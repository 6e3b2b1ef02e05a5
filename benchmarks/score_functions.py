"""Score functions on the VAEs of docs/estimators-compared.md: RLOO and DisARM beside straight-through estimators.

    PYTHONPATH=lab python benchmarks/score_functions.py run --data DIR [--shapes 32x16 ...] [--arms rloo-4 ...]
    PYTHONPATH=lab python benchmarks/score_functions.py table      what benchmarks/score_functions.csv says

The task is the laboratory's `categorical-vae` as the study `estimators` trains it: MNIST, 784-512-256 and mirrored,
AdamW with a cosine and 3 epochs of warm-up, batches of 200, 30 epochs, 10,000 training images held out. A score
function takes the place of the gradient of the drawn codes; the KL term is exact, as it is there. 200 bits are codes of
200 x 2.

How it is judged, written down before any run:
    RLOO with 2 draws of each image and with 4 is tuned over the study's five learning rates on the three shapes of the
    study; the study's own runs are what it is held against. On 200 bits, where DisARM (one antithetic pair) is too,
    every arm is tuned over the upper three of these rates, the straight-through ones over their six settings of
    temperatures as well. One run each, seed 0. Chosen is the setting with the lowest validation -ELBO over training
    (evaluated every 3 epochs, one draw), a run that diverged counting as infinite. It is trained again on the study's
    ten fresh seeds and judged by the same number, mean over seeds, paired by seed, exact sign-flip tests: one arm
    is better than another where one-sided p is at most 0.025. With fewer than six seeds there is no verdict.
    Asked on every shape: is RLOO with four draws better than Decoupled ST, and is it better than decoupled ReinMax? On
    200 bits the same of DisARM.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import fmean, stdev
from typing import ClassVar

import torch
from dst_lab.claims import arm as arm_of_study
from dst_lab.claims.measures import best
from dst_lab.claims.paired import sign_flip
from dst_lab.estimators import Choice
from dst_lab.fleet.chooser import Chooser, along, drawn_at
from dst_lab.fleet.loop import Fleet
from dst_lab.plans import FRESH_SEEDS
from dst_lab.plans.plan import seeded, settings
from dst_lab.records import Rows
from dst_lab.report import pick_scale
from dst_lab.runs import Config
from dst_lab.store import Store
from dst_lab.tasks import register
from dst_lab.tasks.categorical_vae import CategoricalVAE, CategoricalVAEConfig, divergence, log_probabilities
from studies.estimators import ESTIMATORS
from studies.estimators.recipes import RATES, SEARCHED, SHAPES, TUNED, role_of
from torch import Tensor

import decoupled_st as dst

FILE = Path(__file__).with_suffix(".csv")
BITS = "200x2"
"""The shape that has DisARM too."""
SCORES = {"rloo-2": ("rloo", 2), "rloo-4": ("rloo", 4), "disarm": ("disarm", 2)}
LABELS = {
    "rloo-2": "RLOO, 2 draws",
    "rloo-4": "RLOO, 4 draws",
    "disarm": "DisARM, one pair",
    "decoupled": "Decoupled ST",
    "gumbel": "ST Gumbel-Softmax",
    "reinmax-decoupled": "ReinMax, decoupled",
}
ARMS = {**dict.fromkeys(SHAPES, ("rloo-4", "rloo-2")), BITS: ("rloo-4", "disarm", "rloo-2", *list(LABELS)[3:])}
"""Shape -> the arms trained on it here."""


@dataclass(frozen=True, kw_only=True)
class ScoreVAEConfig(CategoricalVAEConfig):
    task: ClassVar[str] = "score-vae"
    score: str = field(default="rloo", metadata={"help": "rloo, or disarm for two classes"})
    draws: int = field(default=4, metadata={"help": "of each image and step", "least": 2})


@register
class ScoreVAE(CategoricalVAE):
    """The VAE whose encoder learns by a score function."""

    config_type = ScoreVAEConfig
    config: ScoreVAEConfig

    def loss(self, parameters: dict[str, Tensor], index: Tensor, choose: Chooser) -> Tensor:
        x = self.splits["train"][index]
        logits = self.logits(parameters, x)
        tau = drawn_at(choose, logits)
        nats = self._by_pair if self.config.score == "disarm" else self._by_rloo
        return nats(parameters, logits, tau, x, choose) + divergence(logits, tau)

    def _costs(self, parameters: dict[str, Tensor], codes: Sequence[Tensor], x: Tensor) -> Tensor:
        return torch.stack([self.reconstruction(parameters, code, x) for code in codes])

    def _by_rloo(
        self, parameters: dict[str, Tensor], logits: Tensor, tau: Tensor, x: Tensor, choose: Chooser
    ) -> Tensor:
        codes = [choose.categorical(logits.detach()) for _ in range(self.config.draws)]
        log_q = log_probabilities(logits, tau)
        drawn = torch.stack([(code * log_q).sum((-1, -2)) for code in codes])
        return dst.score_function.rloo(self._costs(parameters, codes, x), drawn).mean(0)

    def _by_pair(
        self, parameters: dict[str, Tensor], logits: Tensor, tau: Tensor, x: Tensor, choose: Chooser
    ) -> Tensor:
        l = (logits[..., 1] - logits[..., 0]) / along(tau, logits[..., 0])
        noise = choose.source.noise("logistic", l.shape[1:])
        pair = torch.stack([dst.binary.decoupled(l.detach(), tau_f=1.0, tau_b=1.0, noise=g) for g in (noise, -noise)])
        costs = self._costs(parameters, [torch.stack([1 - z, z], -1) for z in pair], x)
        return dst.score_function.disarm(costs, pair, l).mean(0)


def searched(shape: str, arm: str) -> list[Config]:
    """The settings of an arm on a shape, seed 0."""
    latents, classes = {**SHAPES, BITS: (200, 2)}[shape]
    rates = RATES[2:] if shape == BITS else RATES
    fields = {**CategoricalVAEConfig.paper(), **SEARCHED, "bound_samples": 0, "latents": latents, "classes": classes}
    if arm in SCORES:
        score, draws = SCORES[arm]
        drawn = Choice.make("softmax_ste", tau=1.0)
        return settings(ScoreVAEConfig(**fields, estimator=drawn, score=score, draws=draws), (("lr", rates),))
    tuned = TUNED[arm]
    return settings(CategoricalVAEConfig(**fields, estimator=tuned.choice()), (*tuned.axes, ("lr", rates)))


def train(configs: Sequence[Config], source: str | None, epochs: int | None) -> list[dict[str, str]]:
    """A row for each run, trained as one fleet."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = {ScoreVAEConfig: ScoreVAE, CategoricalVAEConfig: CategoricalVAE}[type(configs[0])]
    if epochs:
        configs = [
            config.with_values(config.estimator, {"epochs": epochs, "warmup": epochs / 10}) for config in configs
        ]
    rows = []
    for config, record in zip(configs, Fleet(task(configs[0], source, device), configs).train(), strict=True):
        taus = " ".join(f"{name}={course.start:g}" for name, course in config.estimator.temperatures)
        values = {name: series.values for name, series in record.history.items()}
        broke = record.status != "done"
        rows.append(
            {
                "lr": f"{config.lr:g}",
                "temperatures": taus,
                "seed": str(config.seed),
                "status": record.status,
                "lowest": "inf" if broke else f"{values['validation_loss'].min():.4f}",
                **{
                    name: "inf" if broke else f"{values[name][-1]:.4f}"
                    for name in ("validation_loss_argmax", "test_loss")
                },
                "fleet_s": f"{record.provenance['seconds']:.1f}",
                "device": record.provenance.get("device_name", "cpu"),
                "torch": torch.__version__,
                "date": date.today().isoformat(),
            }
        )
    return rows


def add(file: Path, rows: Sequence[dict[str, str]]) -> None:
    new = not file.exists()
    with file.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def run(shape: str, arm: str, file: Path, source: str | None, epochs: int | None) -> None:
    """Search, then the fresh seeds of what was chosen."""
    configs = searched(shape, arm)
    rows = train(configs, source, epochs)
    add(file, [{"phase": "search", "shape": shape, "arm": arm, **row} for row in rows])
    chosen = configs[min(range(len(rows)), key=lambda i: float(rows[i]["lowest"]))]
    rows = train(seeded([chosen], FRESH_SEEDS), source, epochs)
    add(file, [{"phase": "judge", "shape": shape, "arm": arm, **row} for row in rows])


def judged(file: Path, rows: Rows) -> dict[tuple[str, str], tuple[str, dict[int, float]]]:
    """(shape, arm) -> its setting, and the lowest loss of each fresh seed: those trained here and the study's own."""
    losses: dict[tuple[str, str], tuple[str, dict[int, float]]] = {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["phase"] == "judge":
                setting = f"{row['temperatures']}, rate {float(row['lr']):.2g}"
                seeds = losses.setdefault((row["shape"], row["arm"]), (setting, {}))[1]
                seeds[int(row["seed"])] = float(row["lowest"])
    for shape in SHAPES:
        for name in ("decoupled", "reinmax-decoupled"):
            runs = arm_of_study(rows, CategoricalVAEConfig.task, role_of(shape, name)).rows
            lowest = {row.run.seed: best("validation_loss").of(row) if row.done else math.inf for row in runs}
            losses[shape, name] = "as the study chose", lowest
    return losses


def verdict(ours: dict[int, float], theirs: dict[int, float]) -> str:
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 6:
        return f"no verdict: {len(seeds)} seeds in common"
    finite = [loss for one in (ours, theirs) for loss in one.values() if math.isfinite(loss)]
    gains = [min(theirs[seed], max(finite)) - min(ours[seed], max(finite)) for seed in seeds]
    better, worse = sign_flip(gains)
    word = "better" if better <= 0.025 else "worse" if worse <= 0.025 else "level"
    return f"{word}, {-fmean(gains):+.2f} nats, p {min(better, worse):.2g}, {len(seeds)} seeds"


def table(file: Path) -> None:
    """A row for each arm, a column for each shape; then the verdicts."""
    with Store.open(Path(__file__).parents[1] / "lab/results/estimators") as store:
        losses = judged(file, ESTIMATORS.rows(store, pick_scale(ESTIMATORS, store)))
    print(f"| estimator | {' | '.join(ARMS)} |\n|{'---|' * (1 + len(ARMS))}")
    for name, label in LABELS.items():
        cells = []
        for shape in ARMS:
            setting, seeds = losses.get((shape, name), ("", {}))
            done = [loss for loss in seeds.values() if math.isfinite(loss)]
            spread = (
                f"{fmean(done):.2f} ± {stdev(done):.2f} (n = {len(done)}; {setting})" if len(done) > 1 else "not run"
            )
            cells.append(spread + f", {len(seeds) - len(done)} diverged" * (len(done) < len(seeds)))
        print(f"| {label} | {' | '.join(cells)} |")
    for shape in ARMS:
        for ours in ("rloo-4", "disarm") if shape == BITS else ("rloo-4",):
            for theirs in ("decoupled", "reinmax-decoupled"):
                if all((shape, name) in losses for name in (ours, theirs)):
                    word = verdict(losses[shape, ours][1], losses[shape, theirs][1])
                    print(f"{shape}: {LABELS[ours]} against {LABELS[theirs]}: {word}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("phase", choices=["run", "table"])
    parser.add_argument("--shapes", nargs="+", default=list(ARMS))
    parser.add_argument("--arms", nargs="+", default=list(LABELS))
    parser.add_argument("--data", help="folder with the data sets")
    parser.add_argument("--epochs", type=int, help="another length, to try it")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    if given.phase == "table":
        return table(given.out)
    torch.set_float32_matmul_precision("high")
    for shape in given.shapes:
        for arm in ARMS[shape]:
            if arm in given.arms:
                run(shape, arm, given.out, given.data, given.epochs)
                print(shape, arm, flush=True)
    return None


if __name__ == "__main__":
    main()
