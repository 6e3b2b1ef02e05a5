"""Every figure of the study, from its tables of runs; images are `samples.npz` next to them."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import numpy as np
from dst_lab.figures.style import FAINT, INK, Drawn, absent, panels
from dst_lab.records import Row, Rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.diffusion.claims import (
    COSINE,
    DATASETS,
    DIRECTIONS,
    GRADIENTS,
    GUIDANCE,
    GUIDANCE_ARMS,
    LOOPS,
    NORM,
    OBJECTIVE,
    PATHS,
    PUBLISHED,
    REWARD_ARMS,
    REWARDS,
    SUDOKU,
    SUDOKU_ARMS,
    guided,
    picked,
    rewarded,
)

COLORS = {"decoupled": "#d55e00", "decoupled-tokens": "#d55e00", "decoupled-all": "#e69f00"}
COLORS |= {"st": "#0072b2", "st-tokens": "#0072b2", "st-all": "#56b4e9"}
COLORS |= {"rloo": "#009e73", "grpo": "#7d7f86", "drakes": "#cc79a7"}
COLORS |= {"gumbel": "#cc79a7", "reinmax": "#7d7f86", "soft": "#c08a00", "none": FAINT}
PATH_COLORS = ("#d55e00", "#c08a00", "#7d7f86", "#4d4f55", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")
STEPS = (4, 16, 64, 256)
SAMPLES = "samples.npz"
GUIDED = {"none": "no guidance", **GUIDANCE_ARMS}


def steps(rows: Rows) -> Drawn:
    """Norm of the gradient against the number of steps."""
    title, (figure, (ax,)) = "Gradient norm against the number of steps", panels(1, width=5.6, height=3.4)
    runs = {path: {count: picked(rows, GRADIENTS, arm=path, steps=count) for count in STEPS} for path in PATHS}
    if not runs[LOOPS[0]][STEPS[0]]:
        return _nothing(title, figure, "the gradients")
    for (path, by_count), color in zip(runs.items(), PATH_COLORS, strict=True):
        means = {count: fmean(row.last(NORM) for row in own) for count, own in by_count.items() if own}
        line = "--" if path in LOOPS else "-"
        ax.plot(list(means), list(means.values()), color=color, marker="o", ls=line, label=path)
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="norm of the gradient")
    ax.set_xticks(STEPS, [str(count) for count in STEPS])
    ax.minorticks_off()
    ax.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.02, 0.5))
    least = min(len(own) for by_count in runs.values() for own in by_count.values())
    text = (
        f"256 tokens, a small transformer, a random reward; means over {least} batches of 128 rollouts of each path. "
        "Where a dashed line ends, the gradient is no number."
    )
    return Drawn(title, figure, text, 1)


def directions(rows: Rows) -> Drawn:
    """Cosines of one batch's gradients with the true one, before fine-tuning."""
    title, (figure, (ax,)) = "Direction of a batch's gradient", panels(1, width=5.6, height=3.2)
    runs: dict[tuple[str, float], list[Row]] = {}
    for row in picked(rows, DIRECTIONS, dataset="mnist"):
        numbers = row.run.config["estimator"]
        runs.setdefault((str(row.run.config["arm"]), float(numbers.get("tau_b", numbers.get("tau")))), []).append(row)
    if not runs:
        return _nothing(title, figure, "the gradients")
    for place, ((arm, _), own) in enumerate(runs.items()):
        cosines = [row.last(COSINE) for row in own]
        ax.plot(cosines, [place] * len(own), "o", ms=3, alpha=0.5, color=COLORS[arm])
        ax.plot(fmean(cosines), place, "|", ms=14, mew=2, color=COLORS[arm])
    labels = [
        REWARD_ARMS[arm] + f", {'tau' if arm == 'drakes' else 'tau_b'} {value:g}" * (arm != "rloo")
        for arm, value in runs
    ]
    ax.set_yticks(range(len(runs)), labels)
    ax.invert_yaxis()
    ax.set_xlabel("cosine with the score function's mean over 8,192 rollouts")
    text = (
        "A masked model of MNIST before fine-tuning, 784 pixels, 16 steps, log p(4) as the reward. Dots: single "
        "batches of 128 rollouts; lines: their means. Cosines are corrected for the reference's own noise."
    )
    return Drawn(title, figure, text, 1)


def solved(rows: Rows) -> Drawn:
    """Sudoku without a prior, every arm."""
    title, (figure, (ax,)) = "Sudoku without a prior", panels(1, width=5.6, height=3.6)
    runs = {arm: own for arm in SUDOKU_ARMS if (own := picked(rows, SUDOKU, phase="judge", arm=arm))}
    if not runs:
        return _nothing(title, figure, "the judging runs")
    for how, off, alpha in (("argmax", -0.2, 1.0), ("drawn", 0.2, 0.4)):
        shares = [100 * fmean(row.last(f"solved_{how}") for row in own) for own in runs.values()]
        places = [i + off for i in range(len(runs))]
        color = [COLORS["decoupled"] if arm in ("decoupled", "self") else COLORS["st"] for arm in runs]
        ax.barh(places, shares, 0.38, color=color, alpha=alpha, label="by argmax" if how == "argmax" else "by a draw")
    ax.set_yticks(range(len(runs)), [SUDOKU_ARMS[arm] for arm in runs])
    ax.invert_yaxis()
    ax.set_xlabel("solved of 1,000 fresh puzzles (%)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    text = "Means of five repetitions, each arm at the setting that tuning chose; Decoupled ST in orange."
    return Drawn(title, figure, text, 1)


def pairs(rows: Rows) -> Drawn:
    """XOR and AND of pixels, with the published numbers."""
    title, (figure, axes) = "XOR and AND of pixels", panels(2, width=4.6, height=2.8)
    said = []
    for ax, (problem, (published, _)) in zip(axes, PUBLISHED.items(), strict=True):
        runs = {arm: own for arm in GUIDED if (own := guided(rows, problem, arm, 0))}
        if not runs:
            return _nothing(title, figure, "the judging runs")
        _bars(ax, {arm: fmean(row.last("psnr") for row in own) for arm, own in runs.items()})
        ax.axvline(published, color=INK, lw=0.8, ls=(0, (4, 2)))
        ax.set_title(problem.upper())
        ax.set_xlabel("PSNR (dB)")
        settings = min(len(picked(rows, GUIDANCE, phase="tune", problem=problem, arm=arm)) for arm in GUIDANCE_ARMS)
        counted = min(map(len, runs.values()))
        said.append(f"{problem.upper()}: tuned over {settings} settings each, {counted} of three repetitions")
    text = (
        f"The first 1,000 test images of MNIST. {'; '.join(said)}. Dashed: SGDD's published number, with another prior."
    )
    return Drawn(title, figure, text, 2)


def samples(rows: Rows) -> Drawn:
    """Images as guidance found them."""
    title, panels_of = "Images from XOR and AND of their pixels", {problem: problem.upper() for problem in PUBLISHED}
    text = "The first twelve test images, first repetition, none picked."
    return _images(rows, title, panels_of, {"truth": "truth", **GUIDED}, 32, text)


def rewards(rows: Rows) -> Drawn:
    """J of every fine-tuned model, with that of the model before and of the truth."""
    title, (figure, axes) = "Fine-tuning by a classifier's reward", panels(2, width=4.6, height=2.9)
    left = list[str]()
    for ax, (dataset, label) in zip(axes, DATASETS.items(), strict=True):
        runs = rewarded(rows, dataset)
        known = {row.run.config["arm"]: row for row in picked(rows, REWARDS, phase="truth", dataset=dataset)}
        if not all(runs.values()) or not known:
            return _nothing(title, figure, "the judging runs")
        before, truth = (known[arm].last(OBJECTIVE) for arm in ("before", "truth"))
        for place, (arm, own) in enumerate(runs.items()):
            values = [row.last(OBJECTIVE) for row in own]
            ax.plot(values, [place] * len(own), "o", ms=3, alpha=0.5, color=COLORS[arm])
            ax.plot(fmean(values), place, "|", ms=14, mew=2, color=COLORS[arm])
            if fmean(values) < 1.3 * before:
                left.append(f"{REWARD_ARMS[arm]} {fmean(values):.0f} ({label})")
        ax.axvline(before, color=FAINT, lw=0.8)
        ax.axvline(truth, color=INK, lw=0.8, ls=(0, (4, 2)))
        ax.set_xlim(1.3 * before, 0)
        ax.set_yticks(range(len(runs)), [REWARD_ARMS[arm] for arm in runs])
        ax.invert_yaxis()
        ax.set_title(label)
        ax.set_xlabel("J by classifier B (nats)")
    text = (
        "Dots: fresh seeds, each arm at the setting that tuning chose; lines: their means. Grey: the model before; "
        f"dashed: its draws resampled by the reward. Left of the frame: {', '.join(left) or 'nothing'}."
    )
    return Drawn(title, figure, text, 2)


def tuned(rows: Rows) -> Drawn:
    """Images of the fine-tuned models."""
    labels = {"before": "before", "truth": "resampled", **REWARD_ARMS}
    text = "Twelve draws of each model, first seed, none picked. Wanted: fours, and bags."
    return _images(rows, "Images of fine-tuned models", DATASETS, labels, 28, text)


def _images(
    rows: Rows, title: str, panels_of: Mapping[str, str], labels: Mapping[str, str], side: int, text: str
) -> Drawn:
    """A panel for each of two problems, with a line of kept images for each arm."""
    file, (figure, axes) = Path(rows.store.path) / SAMPLES, panels(2, width=4.6, height=3.0)
    if not file.is_file():
        return _nothing(title, figure, SAMPLES)
    with np.load(file) as kept:
        for ax, (name, label) in zip(axes, panels_of.items(), strict=True):
            lines = [np.concatenate(list(kept[f"{name}-{arm}"].reshape(-1, side, side)), axis=1) for arm in labels]
            ax.imshow(np.concatenate(lines), cmap="gray_r", interpolation="nearest")
            ax.set_title(label)
            ax.set_xticks([])
            ax.set_yticks([side * i + side // 2 for i in range(len(lines))], list(labels.values()), fontsize=6.5)
            ax.grid(visible=False)
    return Drawn(title, figure, text, 2)


def _bars(ax: Axes, values: dict[str, float]) -> None:
    ax.barh(range(len(values)), list(values.values()), color=[COLORS[arm] for arm in values])
    ax.set_yticks(range(len(values)), [GUIDED[arm] for arm in values])
    ax.invert_yaxis()


def _nothing(title: str, figure: Figure, what: str) -> Drawn:
    for one in figure.axes:
        absent(one, [what])
    return Drawn(title, figure, "", len(figure.axes), [what])


FIGURES = {
    "diffusion-steps": steps,
    "diffusion-directions": directions,
    "diffusion-sudoku": solved,
    "diffusion-rewards": rewards,
    "diffusion-tuned": tuned,
    "diffusion-pairs": pairs,
    "diffusion-samples": samples,
}
