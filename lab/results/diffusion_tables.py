"""What follows from the records of the study of masked diffusion: its figures, and the tables that its page quotes.

python -m results.diffusion_tables        or: make results
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from dst_lab.records import Row, Rows
from dst_lab.report.verdicts import MARKS
from results.build import table
from results.quoted import Quoted
from studies.diffusion import DIFFUSION
from studies.diffusion.claims import (
    DATASETS,
    DIRECTIONS,
    GRADIENTS,
    GUIDANCE,
    GUIDANCE_ARMS,
    PATHS,
    PUBLISHED,
    REWARD_ARMS,
    REWARDS,
    SOLVED_MARGIN,
    SUDOKU,
    SUDOKU_ARMS,
    Difference,
    guided,
    over_problems,
    picked,
    rewarded,
)

NUMBERS = {"tau_b": "tau_b", "tau": "tau", "lr": "lr", "weight": "weight", "n": "n", "t_1": "t_1", "falls": "falls"}
COUNTS = (4, 16, 64, 256)


def mean(runs: Sequence[Row], metric: str, digits: int, factor: float = 1.0) -> str:
    """The mean over runs, and their standard deviation."""
    values = [factor * row.last(metric) for row in runs]
    spread = stdev(values) if len(values) > 1 else 0.0
    return f"{round(fmean(values), digits) + 0.0:.{digits}f}" + (
        f" ± {spread:.{digits}f}" if spread >= 0.5 * 10**-digits else ""
    )


def in_points(found: Difference, margin: float) -> str:
    """A difference in points, and the word of the rule."""
    return f"{found.word(margin)} ({100 * found.mean:+.1f} ± {100 * found.error:.1f})"


def setting(row: Row) -> str:
    """What tuning chose."""
    config = row.run.config
    values = config.get("setting") or {**config["estimator"], **config}
    return ", ".join(f"{name} {float(values[name]):g}" for name in NUMBERS if name in values) or "none"


def sudoku(rows: Rows) -> str:
    """Every arm without a prior."""
    body, ours = [], picked(rows, SUDOKU, phase="judge", arm="decoupled")
    for arm, label in SUDOKU_ARMS.items():
        own = picked(rows, SUDOKU, phase="judge", arm=arm)
        word = "" if arm == "decoupled" else in_points(over_problems(rows, ours, own), SOLVED_MARGIN)
        shares = [mean(own, f"solved_{how}", 1, 100) for how in ("argmax", "drawn")]
        body.append([label, setting(own[0]), *shares, word])
    return table(["arm", "chosen", "solved by argmax, %", "by a draw, %", "Decoupled ST is"], body)


def steps(rows: Rows) -> str:
    """The norm of each path at each number of steps."""
    body = []
    for path in PATHS:
        cells = []
        for count in COUNTS:
            own = picked(rows, GRADIENTS, arm=path, steps=count)
            values = [row.last("norm") for row in own]
            text = f"{fmean(values):.2g}" if values and all(map(math.isfinite, values)) else "no number"
            cells.append(f"{text} ({len(own)})" if own else "")
        body.append([path, *cells])
    return table(["path", *(f"{count} steps" for count in COUNTS)], body)


def directions(rows: Rows) -> str:
    """Cosine and norm of each arm's gradient before fine-tuning."""
    body, runs = [], dict[tuple[str, float], list[Row]]()
    for row in picked(rows, DIRECTIONS, dataset="mnist"):
        numbers = row.run.config["estimator"]
        value = float(numbers.get("tau_b", numbers.get("tau")))
        runs.setdefault((str(row.run.config["arm"]), value), []).append(row)
    for (arm, value), own in runs.items():
        cosines = [row.last("cosine") for row in own]
        error = stdev(cosines) / math.sqrt(len(own))
        number = "" if arm == "rloo" else f"{value:g}"
        body.append([REWARD_ARMS[arm], number, f"{fmean(cosines):.3f} ± {error:.3f}", mean(own, "norm", 0)])
    return table(["gradient", "tau_b, or tau", "cosine ± its standard error", "norm ± standard deviation"], body)


def rewards(rows: Rows) -> str:
    """Every arm of fine-tuning by a reward, the model before and the truth."""
    parts = []
    columns = {"objective_b": (2, 1.0), "kl": (2, 1.0), "accuracy_b": (1, 100.0), "frechet_truth": (0, 1.0)}
    for dataset, label in DATASETS.items():
        names = {"before": "the model before", "truth": "its draws, resampled by the reward", **REWARD_ARMS}
        known = {row.run.config["arm"]: [row] for row in picked(rows, REWARDS, phase="truth", dataset=dataset)}
        body = [
            [names[arm], setting(own[0]) if arm in REWARD_ARMS else ""]
            + [mean(own, name, digits, factor) for name, (digits, factor) in columns.items()]
            for arm, own in {**known, **rewarded(rows, dataset)}.items()
        ]
        heads = ["J by classifier B, nats", "KL, nats", "class by B, %", "Frechet distance to the resampled"]
        parts.append(f"{label}:\n\n{table(['arm', 'chosen', *heads], body)}")
    return "\n\n".join(parts)


def guidance(rows: Rows) -> str:
    """Every arm of posterior sampling of images."""
    parts = []
    for problem in PUBLISHED:
        body, ours = [], guided(rows, problem, "decoupled", 0)
        for arm, label in {"none": "no guidance", **GUIDANCE_ARMS}.items():
            own = guided(rows, problem, arm, 0)
            count = len(picked(rows, GUIDANCE, phase="tune", problem=problem, arm=arm)) if arm != "none" else 0
            cells = [mean(own, "psnr", 2), mean(own, "accuracy", 1, 100), mean(own, "error", 2, 100)]
            less = over_problems(rows, ours, own)
            gap = "" if arm == "decoupled" else f"{100 * less.mean:+.1f} ± {100 * less.error:.1f}"
            body.append([label, setting(own[0]) if count else "", str(count or ""), *cells, gap])
        heads = ["PSNR, dB", "class kept, %", "pairs that differ, %", "Decoupled ST keeps more, %"]
        parts.append(f"{problem.upper()}:\n\n{table(['arm', 'chosen', 'settings', *heads], body)}")
    return "\n\n".join(parts)


def verdicts(rows: Rows) -> str:
    """Each question with its verdict, and what it was judged on, or what lacks."""
    body = [
        [one.claim, one.title, f"{MARKS[one.verdict]} {one.verdict}", "; ".join(one.notes or one.missing[:1])]
        for one in DIFFUSION.judge(rows)
    ]
    return table(["", "claim", "verdict", "by what, or what is missing"], body)


BLOCKS: dict[str, Callable[[Rows], str]] = {
    "steps": steps,
    "sudoku": sudoku,
    "directions": directions,
    "rewards": rewards,
    "guidance": guidance,
    "verdicts": verdicts,
}
QUOTED = Quoted(DIFFUSION, ("docs/diffusion.md",), BLOCKS)

if __name__ == "__main__":
    QUOTED.build()
