"""How the questions are judged. The rules were written into the scripts that made the records, before the runs:
benchmarks/masked.py, sudoku.py, fine_tuning.py and guidance.py."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Any

import numpy as np
import numpy.typing as npt
from dst_lab.claims import Verdict
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, SUPPORTED
from dst_lab.records import Row, Rows

GRADIENTS, SUDOKU, REWARDS, GUIDANCE = "masked-gradients", "sudoku", "masked-rewards", "masked-guidance"
DIRECTIONS = "masked-rewards-gradients"
OBJECTIVE, NORM, COSINE = "objective_b", "norm", "cosine"
LOOPS = ("copied loop, one-hot", "copied loop, flag detached", "copied loop, soft, tau 1", "copied loop, soft, tau 0.5")
ROLLOUTS = ("rollout, tokens", "rollout, tokens, tau_b 2", "rollout, all")
PATHS = (*LOOPS, *ROLLOUTS, "score function")
SUDOKU_ARMS = {
    "decoupled": "Decoupled ST, constants",
    "st": "Softmax STE",
    "redge": "ReDGE",
    "gumbel-rao": "Gumbel-Rao, 10 noises",
    "gumbel": "ST Gumbel-Softmax",
    "reinmax": "ReinMax",
    "rloo": "RLOO, 8 draws per step",
    "soft": "softmax with no draw",
    "self": "SelfTempered",
    "entropy": "Softmax STE and an entropy bonus",
}
REWARD_ARMS = {
    "st-tokens": "Softmax STE, tokens",
    "st-all": "Softmax STE, all",
    "decoupled-tokens": "Decoupled ST, tokens",
    "decoupled-all": "Decoupled ST, all",
    "rloo": "RLOO",
    "grpo": "GRPO, one step",
    "drakes": "DRAKES, soft states",
}
GUIDANCE_ARMS = {
    "st": "Softmax STE",
    "decoupled": "Decoupled ST",
    "gumbel": "ST Gumbel-Softmax",
    "reinmax": "ReinMax",
    "soft": "softmax with no draw",
    "rloo": "RLOO, 8 draws per step",
}
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
PRIOR, LEAST_ROUNDS, LEAST_BATCHES = 5000, 3, 4
SOLVED_MARGIN, KEPT_MARGIN, NATS = 0.05, 0.02, 0.1
PUBLISHED = {"xor": (20.17, 91.2), "and": (17.25, 79.4)}
"""dB and per cent of images whose class is kept: SGDD (Chu et al., 2025), whose prior is another."""
Bits = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Ours less theirs, and its standard error."""

    mean: float
    error: float

    def word(self, margin: float) -> str:
        """Better or worse by at least the margin and more than two standard errors, or level."""
        if abs(self.mean) < margin or not abs(self.mean) > 2 * self.error:
            return "level"
        return "better" if self.mean > 0 else "worse"


def picked(rows: Rows, task: str, **config: Any) -> list[Row]:
    """The runs of a task with these values in their configs, by seed."""
    found = [r for r in rows.runs.values() if r.run.task == task and config.items() <= r.run.config.items()]
    return sorted(found, key=lambda row: row.run.seed)


def each(rows: Rows, runs: Sequence[Row]) -> Bits:
    """For each problem, the share of these runs that solved it."""
    bits = []
    for row in runs:
        text, count = str(rows.store.provenance(row.run.id)["each"]), int(row.run.config["problems"])
        bits.append([int(bit) for bit in f"{int(text[1:], 16):0{count}b}"])
    return np.array(bits, dtype=np.float64).mean(0)


def over_problems(rows: Rows, ours: Sequence[Row], theirs: Sequence[Row]) -> Difference:
    """Paired by problem, means over the repetitions."""
    difference = each(rows, ours) - each(rows, theirs)
    return Difference(float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference))))


def over_seeds(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Of two means over seeds."""
    error = math.sqrt(variance(ours) / len(ours) + variance(theirs) / len(theirs))
    return Difference(fmean(ours) - fmean(theirs), error)


def judge(rows: Rows) -> list[Verdict]:
    """Every question."""
    verdicts = [judge_copied(rows), judge_rollouts(rows), judge_cosine(rows), *judge_sudoku(rows)]
    for dataset in DATASETS:
        verdicts += judge_rewards(rows, dataset)
    return [*verdicts, *(judge_guidance(rows, problem) for problem in ("sudoku", "xor", "and")), judge_published(rows)]


def batches(rows: Rows, arm: str, steps: int) -> list[Row]:
    """A path's batches at a number of steps, of those that every path has."""
    seeds = [{row.run.seed for row in picked(rows, GRADIENTS, arm=path, steps=steps)} for path in PATHS]
    whole = set.intersection(*seeds)
    return [row for row in picked(rows, GRADIENTS, arm=arm, steps=steps) if row.run.seed in whole]


def mean_of(rows: Rows, arm: str, steps: int, metric: str = NORM) -> float:
    """A path's mean over its batches; NaN where one is none, or where there are none."""
    return fmean([row.last(metric) for row in batches(rows, arm, steps)] or [math.nan])


def growth(rows: Rows, arm: str) -> float:
    """The mean norm at 256 steps over that at 4."""
    return mean_of(rows, arm, 256) / mean_of(rows, arm, 4)


def explodes(rows: Rows, arm: str) -> bool:
    return not growth(rows, arm) <= 2


def _gradients(rows: Rows, claim: str, title: str, rule: str, arms: Sequence[str]) -> Verdict:
    """A claim on the gradients of these paths, not yet judged, with what is missing."""
    few = [count for count in (4, 64, 256) if len(batches(rows, arms[0], count)) < LEAST_BATCHES]
    return Verdict(
        claim=claim,
        task=GRADIENTS,
        title=title,
        rule=rule,
        missing=tuple(f"gradients of {count} steps" for count in few),
        runs=tuple(row.run.id for arm in arms for row in picked(rows, GRADIENTS, arm=arm)),
    )


def _text(value: float) -> str:
    return f"{value:.2f}" if 0.01 < value < 100 else f"{value:.1e}"


def _all_better(words: Collection[str]) -> str:
    """Supported where ours is better than everything else, contradicted where it is worse than something."""
    return CONTRADICTED if "worse" in words else SUPPORTED if set(words) == {"better"} else NOT_SUPPORTED


MEAN_NORM = "Mean norm over the batches that every path has, eight or at least four, at 256 steps, over that at 4: "


def judge_copied(rows: Rows) -> Verdict:
    """The explosion of the copied mask channel, and its cure."""
    rule = f"{MEAN_NORM}more than 2, or no number, with the mask channel attached, and at most 2 with it detached."
    claim = _gradients(rows, "E1", "The copied loop explodes by its mask channel", rule, LOOPS[:2])
    if claim.missing:
        return claim
    holds = explodes(rows, LOOPS[0]) and not explodes(rows, LOOPS[1])
    grown = {arm: growth(rows, arm) for arm in LOOPS[:2]}
    notes = tuple(
        f"{arm}: {_text(value)} times the norm at 4 steps" if math.isfinite(value) else f"{arm}: no number"
        for arm, value in grown.items()
    )
    return replace(claim, verdict=SUPPORTED if holds else NOT_SUPPORTED, notes=notes)


def judge_rollouts(rows: Rows) -> Verdict:
    """The norm of a rollout's gradient over the number of steps."""
    rule = f"{MEAN_NORM}from 0.5 to 2 on every path of `rollout`."
    claim = _gradients(rows, "E2", "The norm of a rollout's gradient stays from 4 to 256 steps", rule, ROLLOUTS)
    if claim.missing:
        return claim
    grown = {arm: growth(rows, arm) for arm in ROLLOUTS}
    stays = all(0.5 <= value <= 2 for value in grown.values())
    notes = tuple(f"{arm}: {value:.2f}" for arm, value in grown.items())
    return replace(claim, verdict=SUPPORTED if stays else NOT_SUPPORTED, notes=notes)


def judge_cosine(rows: Rows) -> Verdict:
    """The direction of a rollout's gradient against that of the mended loop."""
    arms = (ROLLOUTS[0], LOOPS[1])
    title = "Its direction is not worse than that of the copied loop with the channel detached"
    rule = (
        "Mean cosine over the batches that every path has, at 64 steps with the score function's gradient: not lower "
        "by more than two standard errors."
    )
    claim = _gradients(rows, "E3", title, rule, arms)
    ours, theirs = ([row.last(COSINE) for row in batches(rows, arm, 64)] for arm in arms)
    if not all(map(math.isfinite, ours)):
        few = "a mean gradient of the score function at 64 steps whose halves agree: more than 8,192 rollouts"
        claim = replace(claim, missing=(*claim.missing, few))
    if claim.missing:
        return claim
    found = over_seeds(ours, theirs)
    note = f"{fmean(ours):.2f} against {fmean(theirs):.2f} ({found.mean:+.2f} ± {found.error:.2f})"
    lower = found.mean < -2 * found.error
    return replace(claim, verdict=NOT_SUPPORTED if lower else SUPPORTED, notes=(note,))


def judge_sudoku(rows: Rows) -> list[Verdict]:
    """Decoupled ST against everything else, and against the control."""
    rivals = [arm for arm in SUDOKU_ARMS if arm not in ("decoupled", "entropy")]
    return [
        _sudoku(rows, "A1", "Decoupled ST solves more Sudokus than every rival, without a prior", rivals),
        _sudoku(rows, "A2", "It solves more than the entropy bonus that the penalty's squares are", ["entropy"]),
    ]


def _sudoku(rows: Rows, claim: str, title: str, rivals: Sequence[str]) -> Verdict:
    runs = {arm: picked(rows, SUDOKU, phase="judge", arm=arm) for arm in ("decoupled", *rivals)}
    asked = Verdict(
        claim=claim,
        task=SUDOKU,
        title=title,
        rule="24 settings each on 512 puzzles, the chosen one on 1,000 fresh puzzles, five repetitions. Better: at "
        "least 5 points more solved by argmax, and more than two standard errors of the paired differences. "
        "Contradicted where a rival is better by the same rule.",
        missing=tuple(f"judging runs of {SUDOKU_ARMS[arm]}" for arm, own in runs.items() if not own),
        runs=tuple(row.run.id for own in runs.values() for row in own),
    )
    if asked.missing:
        return asked
    words, notes = [], []
    for arm in rivals:
        found = over_problems(rows, runs["decoupled"], runs[arm])
        words.append(found.word(SOLVED_MARGIN))
        than = "level with" if words[-1] == "level" else f"{words[-1]} than"
        notes.append(f"{than} {SUDOKU_ARMS[arm]} ({100 * found.mean:+.1f} ± {100 * found.error:.1f})")
    return replace(asked, verdict=_all_better(words), notes=tuple(notes))


def tuned(rows: Rows, dataset: str, arm: str) -> float:
    """J by classifier A of the chosen setting."""
    runs = [row for row in picked(rows, REWARDS, phase="tune", dataset=dataset, arm=arm) if row.has("objective_a")]
    return max((row.last("objective_a") for row in runs), default=-math.inf)


def rewarded(rows: Rows, dataset: str) -> dict[str, list[Row]]:
    """The judging runs of each arm in the rounds that every arm has finished."""
    runs = {arm: picked(rows, REWARDS, phase="judge", dataset=dataset, arm=arm) for arm in REWARD_ARMS}
    whole = set.intersection(*({row.run.seed for row in own} for own in runs.values()))
    return {arm: [row for row in own if row.run.seed in whole] for arm, own in runs.items()}


REWARD_CLAIMS = {
    "F1": (
        "Separate temperatures help",
        "The better Decoupled arm is better than the better arm of ratio 1 and than RLOO; contradicted if worse.",
    ),
    "F2": (
        "A gradient through the tokens beats policy gradients",
        "Softmax STE through tokens is better than RLOO and than GRPO; contradicted if worse than one.",
    ),
    "F3": (
        "One-hot states lose nothing to soft ones",
        "The best of Softmax STE and Decoupled ST by tuning is not worse than DRAKES.",
    ),
    "F4": ("Detached inputs lose nothing", "Softmax STE through tokens is not worse than through all."),
}
"""Titles, and what each rule adds to the one that all four share."""


def judge_rewards(rows: Rows, dataset: str) -> list[Verdict]:
    """Fine-tuning on a data set."""
    runs = rewarded(rows, dataset)
    missing = tuple(
        f"{LEAST_ROUNDS - len(own)} of {LEAST_ROUNDS} judging runs of {REWARD_ARMS[arm]} on {DATASETS[dataset]}"
        for arm, own in runs.items()
        if len(own) < LEAST_ROUNDS
    )
    rule = (
        "J = E log p(class) - KL by the classifier that no arm has seen, mean over fresh seeds; at most four settings "
        f"tuned on another seed by the other classifier. Better: at least {NATS} nats and more than two standard "
        "errors. "
    )
    asked = {
        name: Verdict(
            claim=f"{name} {dataset}",
            task=REWARDS,
            title=f"{title}, {DATASETS[dataset]}",
            rule=rule + own,
            missing=missing,
            runs=tuple(row.run.id for of_arm in runs.values() for row in of_arm),
        )
        for name, (title, own) in REWARD_CLAIMS.items()
    }
    if missing:
        return list(asked.values())

    def best(*arms: str) -> str:
        return max(arms, key=lambda arm: tuned(rows, dataset, arm))

    decoupled, plain = best("decoupled-tokens", "decoupled-all"), best("st-tokens", "st-all")
    arms = {
        "F1": (decoupled, plain, "rloo"),
        "F2": ("st-tokens", "rloo", "grpo"),
        "F3": (best(decoupled, plain), "drakes"),
        "F4": ("st-tokens", "st-all"),
    }
    verdicts = []
    for name, (ours, *theirs) in arms.items():
        words, notes = zip(*(_rewards(runs, ours, other) for other in theirs), strict=True)
        verdict = _all_better(words)
        if name in ("F3", "F4"):  # not worse is enough
            verdict = NOT_SUPPORTED if "worse" in words else SUPPORTED
        verdicts.append(replace(asked[name], verdict=verdict, notes=notes))
    return verdicts


def _rewards(runs: Mapping[str, Sequence[Row]], ours: str, theirs: str) -> tuple[str, str]:
    """Whether ours is better, worse or level, and a sentence on it."""
    values = [[row.last(OBJECTIVE) if row.done else -math.inf for row in runs[arm]] for arm in (ours, theirs)]
    if not all(math.isfinite(value) for side in values for value in side):
        return ("worse" if -math.inf in values[0] else "better"), "a run diverged"
    found = over_seeds(*values)
    note = f"{REWARD_ARMS[ours]} {fmean(values[0]):.2f}, {REWARD_ARMS[theirs]} {fmean(values[1]):.2f} nats"
    return found.word(NATS), f"{note} ({found.mean:+.2f} ± {found.error:.2f}, n = {len(values[0])})"


def guided(rows: Rows, problem: str, arm: str, prior: int) -> list[Row]:
    """The judging runs of an arm."""
    return picked(rows, GUIDANCE, phase="judge", problem=problem, arm=arm, prior=prior)


GUIDANCE_CLAIMS = {
    "sudoku": ("G1", "Sudoku with a prior", "solved puzzles"),
    "xor": ("G2", "XOR of pixels", "images whose class is kept"),
    "and": ("G3", "AND of pixels", "images whose class is kept"),
}
"""Problem -> claim, the problem in words, what is counted."""


def judge_guidance(rows: Rows, problem: str) -> Verdict:
    """Separate temperatures in guidance."""
    name, where, what = GUIDANCE_CLAIMS[problem]
    prior = PRIOR if problem == "sudoku" else 0
    runs = {arm: guided(rows, problem, arm, prior) for arm in ("decoupled", "st", "rloo")}
    claim = Verdict(
        claim=name,
        task=GUIDANCE,
        title=f"Separate temperatures help guidance, {where}",
        rule="At most twelve settings per arm, equally many, on problems of their own; then fresh ones, three "
        f"repetitions. Decoupled ST, tau_b apart from 1, has at least 2 points more {what} than ratio 1 and than RLOO "
        "of 8 draws, and more than two standard errors of the paired differences; contradicted if it has fewer by the "
        "same rule.",
        missing=tuple(
            f"judging runs of {GUIDANCE_ARMS[arm]} on {problem}" for arm, own in runs.items() if len(own) < 3
        ),
        runs=tuple(row.run.id for own in runs.values() for row in own),
    )
    if claim.missing:
        return claim
    words, notes = [], []
    for other in ("st", "rloo"):
        found = over_problems(rows, runs["decoupled"], runs[other])
        words.append(found.word(KEPT_MARGIN))
        shares = [f"{GUIDANCE_ARMS[arm]} {100 * each(rows, runs[arm]).mean():.1f}%" for arm in ("decoupled", other)]
        notes.append(f"{', '.join(shares)} ({100 * found.mean:+.1f} ± {100 * found.error:.1f})")
    return replace(claim, verdict=_all_better(words), notes=tuple(notes))


def judge_published(rows: Rows) -> Verdict:
    """SGDD's PSNR."""
    runs = {(problem, arm): guided(rows, problem, arm, 0) for problem in PUBLISHED for arm in GUIDANCE_ARMS}
    claim = Verdict(
        claim="G4",
        task=GUIDANCE,
        title="SGDD's numbers are reached",
        rule="An arm's mean PSNR over 1,000 test images and three repetitions is not below the published one, on XOR "
        "and on AND. The priors differ: SGDD's is uniform SEDD.",
        missing=tuple(f"judging runs of {GUIDANCE_ARMS[a]} on {p}" for (p, a), own in runs.items() if len(own) < 3),
        runs=tuple(row.run.id for own in runs.values() for row in own),
    )
    if claim.missing:
        return claim
    notes, reached = [], True
    for problem, (published, _) in PUBLISHED.items():
        means = {arm: fmean(row.last("psnr") for row in runs[problem, arm]) for arm in GUIDANCE_ARMS}
        arm = max(means, key=means.__getitem__)
        reached &= means[arm] >= published
        notes.append(f"{problem.upper()}: {GUIDANCE_ARMS[arm]} {means[arm]:.2f} dB, published {published:.2f}")
    return replace(claim, verdict=SUPPORTED if reached else NOT_SUPPORTED, notes=tuple(notes))
