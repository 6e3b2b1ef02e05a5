"""How the questions are judged. The rules were written into the scripts that made the records, before the runs:
benchmarks/masked.py, sudoku.py, fine_tuning.py and guidance.py."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

import numpy as np
import numpy.typing as npt
from dst_lab.claims import Verdict
from dst_lab.claims.verdict import CONTRADICTED, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from dst_lab.records import Row, Rows

GRADIENTS, SUDOKU, REWARDS, GUIDANCE = "masked-gradients", "sudoku", "masked-rewards", "masked-guidance"
DIRECTIONS = "masked-rewards-gradients"
OBJECTIVE, NORM, COSINE = "objective_b", "norm", "cosine"
LOOPS = ("copied loop, one-hot", "copied loop, flag detached", "copied loop, soft, tau 1", "copied loop, soft, tau 0.5")
ROLLOUTS = ("rollout, tokens", "rollout, tokens, tau_b 2", "rollout, all")
PATHS = (*LOOPS, *ROLLOUTS, "score function")
SUDOKU_ARMS = {
    "decoupled": "Decoupled ST, constants", "st": "Softmax STE", "redge": "ReDGE",
    "gumbel-rao": "Gumbel-Rao, 10 noises", "gumbel": "ST Gumbel-Softmax", "reinmax": "ReinMax",
    "rloo": "RLOO, 8 draws per step", "soft": "softmax with no draw", "self": "SelfTempered",
    "entropy": "Softmax STE and an entropy bonus",
}  # fmt: skip
REWARD_ARMS = {
    "st-tokens": "Softmax STE, tokens", "st-all": "Softmax STE, all", "decoupled-tokens": "Decoupled ST, tokens",
    "decoupled-all": "Decoupled ST, all", "rloo": "RLOO", "grpo": "GRPO, one step", "drakes": "DRAKES, soft states",
}  # fmt: skip
GUIDANCE_ARMS = {
    "st": "Softmax STE", "decoupled": "Decoupled ST", "gumbel": "ST Gumbel-Softmax", "reinmax": "ReinMax",
    "soft": "softmax with no draw", "rloo": "RLOO, 8 draws per step",
}  # fmt: skip
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


def _verdict(
    claim: str,
    task: str,
    title: str,
    rule: str,
    runs: Sequence[Row],
    missing: Sequence[str],
    of: Callable[[], tuple[str, list[str]]],
) -> Verdict:
    """A verdict, where nothing lacks."""
    verdict, notes = (NOT_TESTED, []) if missing else of()
    return Verdict(
        claim=claim, task=task, title=title, rule=rule, verdict=verdict, missing=tuple(missing), notes=tuple(notes),
        runs=tuple(row.run.id for row in runs),
    )  # fmt: skip


def _gradients(rows: Rows, arms: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The batches of some paths, and what lacks."""
    runs = [row for arm in arms for row in picked(rows, GRADIENTS, arm=arm)]
    return runs, [
        f"gradients of {count} steps" for count in (4, 64, 256) if len(batches(rows, arms[0], count)) < LEAST_BATCHES
    ]


def _text(value: float) -> str:
    return f"{value:.2f}" if 0.01 < value < 100 else f"{value:.1e}"


def judge_copied(rows: Rows) -> Verdict:
    """The explosion of the copied mask channel, and its cure."""
    runs, missing = _gradients(rows, LOOPS[:2])

    def of() -> tuple[str, list[str]]:
        holds = explodes(rows, LOOPS[0]) and not explodes(rows, LOOPS[1])
        notes = [f"{arm}: {_text(growth(rows, arm))} times the norm at 4 steps" for arm in LOOPS[:2]]
        return SUPPORTED if holds else NOT_SUPPORTED, notes

    return _verdict(
        "E1", GRADIENTS, "The copied loop explodes by its mask channel",
        "Mean norm over the batches that every path has, eight or at least four, at 256 steps, over that at 4: more "
        "than 2, or no number, with the mask channel attached, and at most 2 with it detached.", runs, missing, of,
    )  # fmt: skip


def judge_rollouts(rows: Rows) -> Verdict:
    runs, missing = _gradients(rows, ROLLOUTS)

    def of() -> tuple[str, list[str]]:
        grown = {arm: growth(rows, arm) for arm in ROLLOUTS}
        notes = [f"{arm}: {value:.2f}" for arm, value in grown.items()]
        return SUPPORTED if all(0.5 <= value <= 2 for value in grown.values()) else NOT_SUPPORTED, notes

    return _verdict(
        "E2", GRADIENTS, "The norm of a rollout's gradient stays from 4 to 256 steps",
        "Mean norm over the batches that every path has, eight or at least four, at 256 steps, over that at 4: from "
        "0.5 to 2 on every path of `rollout`.",
        runs, missing, of,
    )  # fmt: skip


def judge_cosine(rows: Rows) -> Verdict:
    runs, missing = _gradients(rows, (ROLLOUTS[0], LOOPS[1]))

    def of() -> tuple[str, list[str]]:
        ours, theirs = ([row.last(COSINE) for row in batches(rows, arm, 64)] for arm in (ROLLOUTS[0], LOOPS[1]))
        found = over_seeds(ours, theirs)
        lower = found.mean < -2 * found.error
        note = f"{fmean(ours):.2f} against {fmean(theirs):.2f} ({found.mean:+.2f} ± {found.error:.2f})"
        return NOT_SUPPORTED if lower else SUPPORTED, [note]

    return _verdict(
        "E3", GRADIENTS, "Its direction is not worse than that of the copied loop with the channel detached",
        "Mean cosine over the batches that every path has, at 64 steps with the score function's gradient: not lower "
        "by more than two standard errors.", runs, missing, of,
    )  # fmt: skip


def judge_sudoku(rows: Rows) -> list[Verdict]:
    """Decoupled ST against everything else, and against the control."""
    rivals = [arm for arm in SUDOKU_ARMS if arm not in ("decoupled", "entropy")]
    return [
        _sudoku(rows, "A1", "Decoupled ST solves more Sudokus than every rival, without a prior", rivals),
        _sudoku(rows, "A2", "It solves more than the entropy bonus that the penalty's squares are", ["entropy"]),
    ]


def _sudoku(rows: Rows, claim: str, title: str, rivals: Sequence[str]) -> Verdict:
    runs = {arm: picked(rows, SUDOKU, phase="judge", arm=arm) for arm in ("decoupled", *rivals)}
    missing = [f"judging runs of {SUDOKU_ARMS[arm]}" for arm, own in runs.items() if not own]

    def of() -> tuple[str, list[str]]:
        found = {arm: over_problems(rows, runs["decoupled"], runs[arm]) for arm in rivals}
        words = {arm: one.word(SOLVED_MARGIN) for arm, one in found.items()}
        notes = [
            f"{words[arm]} than {SUDOKU_ARMS[arm]}" if words[arm] != "level" else f"level with {SUDOKU_ARMS[arm]}"
            for arm in rivals
        ]
        notes = [f"{n} ({100 * d.mean:+.1f} ± {100 * d.error:.1f})" for n, d in zip(notes, found.values(), strict=True)]
        verdict = SUPPORTED if set(words.values()) == {"better"} else NOT_SUPPORTED
        return CONTRADICTED if "worse" in words.values() else verdict, notes

    return _verdict(
        claim, SUDOKU, title,
        "24 settings each on 512 puzzles, the chosen one on 1,000 fresh puzzles, five repetitions. Better: at least 5 "
        "points more solved by argmax, and more than two standard errors of the paired differences. Contradicted where "
        "a rival is better by the same rule.", [row for own in runs.values() for row in own], missing, of,
    )  # fmt: skip


def tuned(rows: Rows, dataset: str, arm: str) -> float:
    """J by classifier A of the chosen setting."""
    runs = [row for row in picked(rows, REWARDS, phase="tune", dataset=dataset, arm=arm) if row.has("objective_a")]
    return max((row.last("objective_a") for row in runs), default=-math.inf)


def rewarded(rows: Rows, dataset: str, arm: str) -> list[Row]:
    """The judging runs of an arm in the rounds that every arm has finished."""
    whole = [{r.run.seed for r in picked(rows, REWARDS, phase="judge", dataset=dataset, arm=a)} for a in REWARD_ARMS]
    return [
        row
        for row in picked(rows, REWARDS, phase="judge", dataset=dataset, arm=arm)
        if row.run.seed in set.intersection(*whole)
    ]


def judge_rewards(rows: Rows, dataset: str) -> list[Verdict]:
    """Fine-tuning on a data set."""
    runs = {arm: rewarded(rows, dataset, arm) for arm in REWARD_ARMS}
    missing = [
        f"{LEAST_ROUNDS - len(own)} of {LEAST_ROUNDS} judging runs of {REWARD_ARMS[arm]} on {DATASETS[dataset]}"
        for arm, own in runs.items()
        if len(own) < LEAST_ROUNDS
    ]

    def best(*arms: str) -> str:
        return max(arms, key=lambda arm: tuned(rows, dataset, arm))

    def compared(ours: str, theirs: str) -> tuple[str, str]:
        values = [[row.last(OBJECTIVE) if row.done else -math.inf for row in runs[arm]] for arm in (ours, theirs)]
        if not all(math.isfinite(value) for side in values for value in side):
            return ("worse" if -math.inf in values[0] else "better"), "a run diverged"
        found = over_seeds(*values)
        note = f"{REWARD_ARMS[ours]} {fmean(values[0]):.2f}, {REWARD_ARMS[theirs]} {fmean(values[1]):.2f} nats"
        return found.word(NATS), f"{note} ({found.mean:+.2f} ± {found.error:.2f}, n = {len(values[0])})"

    def all_better(ours: str, *theirs: str) -> tuple[str, list[str]]:
        found = [compared(ours, other) for other in theirs]
        words = [word for word, _ in found]
        verdict = SUPPORTED if set(words) == {"better"} else NOT_SUPPORTED
        return CONTRADICTED if "worse" in words else verdict, [note for _, note in found]

    def not_worse(ours: str, theirs: str) -> tuple[str, list[str]]:
        word, note = compared(ours, theirs)
        return NOT_SUPPORTED if word == "worse" else SUPPORTED, [note]

    decoupled, plain = best("decoupled-tokens", "decoupled-all"), best("st-tokens", "st-all")
    claims: list[tuple[str, str, Callable[[], tuple[str, list[str]]]]] = [
        ("F1", "Separate temperatures help", lambda: all_better(decoupled, plain, "rloo")),
        ("F2", "A gradient through the tokens beats policy gradients", lambda: all_better("st-tokens", "rloo", "grpo")),
        ("F3", "One-hot states lose nothing to soft ones", lambda: not_worse(best(decoupled, plain), "drakes")),
        ("F4", "Detached inputs lose nothing", lambda: not_worse("st-tokens", "st-all")),
    ]
    rule = (
        "J = E log p(class) - KL by the classifier that no arm has seen, mean over fresh seeds; at most four settings "
        f"tuned on another seed by the other classifier. Better: at least {NATS} nats and more than two standard "
        "errors. "
    )
    ways = {
        "F1": "The better Decoupled arm is better than the better arm of ratio 1 and than RLOO; contradicted if worse.",
        "F2": "Softmax STE through tokens is better than RLOO and than GRPO; contradicted if worse than one.",
        "F3": "The best of Softmax STE and Decoupled ST by tuning is not worse than DRAKES.",
        "F4": "Softmax STE through tokens is not worse than through all.",
    }
    judged = [row for own in runs.values() for row in own]
    return [
        _verdict(f"{name} {dataset}", REWARDS, f"{title}, {DATASETS[dataset]}", rule + ways[name], judged, missing, of)
        for name, title, of in claims
    ]


def guided(rows: Rows, problem: str, arm: str, prior: int) -> list[Row]:
    """The judging runs of an arm."""
    return picked(rows, GUIDANCE, phase="judge", problem=problem, arm=arm, prior=prior)


def judge_guidance(rows: Rows, problem: str) -> Verdict:
    """Separate temperatures in guidance."""
    prior = PRIOR if problem == "sudoku" else 0
    runs = {arm: guided(rows, problem, arm, prior) for arm in ("decoupled", "st", "rloo")}
    missing = [f"judging runs of {GUIDANCE_ARMS[arm]} on {problem}" for arm, own in runs.items() if len(own) < 3]

    def of() -> tuple[str, list[str]]:
        words, notes = [], []
        for other in ("st", "rloo"):
            found = over_problems(rows, runs["decoupled"], runs[other])
            words.append(found.word(KEPT_MARGIN))
            share = ", ".join(
                f"{GUIDANCE_ARMS[a]} {100 * each(rows, runs[a]).mean():.1f}%" for a in ("decoupled", other)
            )
            notes.append(f"{share} ({100 * found.mean:+.1f} ± {100 * found.error:.1f})")
        verdict = SUPPORTED if set(words) == {"better"} else NOT_SUPPORTED
        return CONTRADICTED if "worse" in words else verdict, notes

    name = {"sudoku": "G1", "xor": "G2", "and": "G3"}[problem]
    where = {"sudoku": "Sudoku with a prior", "xor": "XOR of pixels", "and": "AND of pixels"}[problem]
    what = "solved puzzles" if problem == "sudoku" else "images whose class is kept"
    return _verdict(
        name, GUIDANCE, f"Separate temperatures help guidance, {where}",
        "At most twelve settings per arm, equally many, on problems of their own; then fresh ones, three repetitions. "
        f"Decoupled ST, tau_b apart from 1, has at least 2 points more {what} than ratio 1 and than RLOO of 8 draws, "
        "and more than two standard errors of the paired differences; contradicted if it has fewer by the same rule.",
        [row for own in runs.values() for row in own], missing, of,
    )  # fmt: skip


def judge_published(rows: Rows) -> Verdict:
    """SGDD's PSNR."""
    runs = {(p, a): guided(rows, p, a, 0) for p in PUBLISHED for a in GUIDANCE_ARMS}
    missing = [f"judging runs of {GUIDANCE_ARMS[a]} on {p}" for (p, a), own in runs.items() if len(own) < 3]

    def of() -> tuple[str, list[str]]:
        notes, reached = [], True
        for problem, (published, _) in PUBLISHED.items():
            means = {arm: fmean(row.last("psnr") for row in runs[problem, arm]) for arm in GUIDANCE_ARMS}
            arm = max(means, key=means.__getitem__)
            reached &= means[arm] >= published
            notes.append(f"{problem.upper()}: {GUIDANCE_ARMS[arm]} {means[arm]:.2f} dB, published {published:.2f}")
        return SUPPORTED if reached else NOT_SUPPORTED, notes

    return _verdict(
        "G4", GUIDANCE, "SGDD's numbers are reached",
        "An arm's mean PSNR over 1,000 test images and three repetitions is not below the published one, on XOR and on "
        "AND. The priors differ: SGDD's is uniform SEDD.", [row for own in runs.values() for row in own], missing, of,
    )  # fmt: skip
