"""The searches: the binary network's whole grid, and the others' temperature after temperature."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from dst_lab.cards import estimator, task_card, title
from dst_lab.figures.maps import temperature_map
from dst_lab.figures.style import FAINT, HEIGHT, INK, Drawn, absent, letter, listing, panels
from dst_lab.figures.sweeps import Cells, Sweep, at_rate, count_text, lost_text, searched
from dst_lab.records import Row, Rows, spread
from dst_lab.runs import Config
from matplotlib.axes import Axes

from studies.paper.claims.mechanisms import converged_below
from studies.paper.claims.tasks import CATAE, LOGIC, OPTIMA, OURS, SBN

STROKES = (((0, (1, 1.2)), "v", 0.45), ((0, (5, 1.5, 1, 1.5)), "^", 0.6), ((0, (5, 2)), "s", 0.8), ("-", "o", 1.0))
"""(line, marker, alpha) of up to four learning rates: shades of one colour, distinct without it too."""


def network(rows: Rows) -> Drawn:
    """Binary network: loss, accuracy and inactive neurons over the grid."""
    sweep, reported = searched(rows, SBN.task, OURS), {"the paper's": OPTIMA[SBN.task]}
    return temperature_map(sweep, SBN.task, task_card(SBN.task).parts, reported)


def autoencoder(rows: Rows) -> Drawn:
    """The autoencoder's, with how many seeds converged at each setting."""
    return _search(rows, CATAE.task, "lowest validation loss (nats an image)", counted=True)


def logic(rows: Rows) -> Drawn:
    """The logic gates'."""
    return _search(rows, LOGIC.task, "lowest validation loss (nats)")


def _search(rows: Rows, task: str, label: str, counted: bool = False) -> Drawn:
    """One line per learning rate over each temperature and, where asked for, how many seeds converged."""
    sweep = searched(rows, task, OURS)
    recipe, ours, missing, by_rate = sweep.recipe, sweep.chosen, [*sweep.missing], _by_rate(sweep)
    counted = counted and bool(by_rate)
    heights = (4, len(by_rate) / 4) if counted else (1,)
    figure, axes = panels(2, height=HEIGHT + 0.2 + (0.5 + 0.27 * len(by_rate)) * counted, heights=heights)
    for i, name in enumerate(("tau_f", "tau_b")):
        ax, *below = axes[i * len(heights) : (i + 1) * len(heights)]
        sweeps = {lr: _sweeps(runs_at, ours)[i] for lr, runs_at in by_rate.items()}
        if max(map(len, sweeps.values()), default=0) < 2:
            absent(ax, missing or [f"the sweep of {name}"])
            for counts in below:
                counts.set_axis_off()
            continue
        _losses(ax, sweeps, rows.chosen.get((task, OURS)), name, OPTIMA[task][i])
        ax.set_ylabel(label)
        for counts in below:
            _counts(counts, sweeps, converged_below(rows))
            counts.sharex(ax)
            ax.tick_params(labelbottom=False)
        last = (ax, *below)[-1]
        last.set_xlabel(letter(name))
        drop = (0.14 if below else 0.17) * sum(heights) / heights[-1]
        last.legend(*ax.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -drop), ncols=2)
    caption = _search_caption(rows, task, sweep, by_rate, counted) if by_rate else ""
    return Drawn(f"Temperature search, {title(task)}", figure, caption, 2, missing, (recipe,))


def _by_rate(sweep: Sweep) -> dict[float, Cells]:
    """Each learning rate that the search tried, from the lowest -> its runs."""
    runs = [row for row in sweep.runs if row.done and row.has("validation_loss")]
    return {lr: at_rate(runs, lr) for lr in sorted({float(row.run.config["lr"]) for row in runs})}


def _sweeps(runs_at: Cells, ours: tuple[float, float] | None) -> list[dict[float, list[Row]]]:
    """The runs along tau_f at the search's first tau_b, and along tau_b at the tau_f it then chose."""
    ordered = dict(sorted(runs_at.items()))
    first_b = max({b for _, b in runs_at}, key=lambda b: sum(at[1] == b for at in runs_at), default=None)
    forward = {f: members for (f, b), members in ordered.items() if b == first_b}
    backward = {b: members for (f, b), members in ordered.items() if ours is not None and f == ours[0]}
    return [forward, backward]


def _losses(
    ax: Axes, sweeps: Mapping[float, dict[float, list[Row]]], config: Config | None, name: str, paper: float
) -> None:
    """Darker, and less broken, the higher the rate. Where some runs collapse the seeds lie in two heaps, which a
    standard deviation would not show: of several rates, the seeds of the chosen one are drawn as they are."""
    color = estimator(OURS).color
    for (lr, across), (line, marker, alpha) in zip(sweeps.items(), STROKES[-len(sweeps) :], strict=True):
        losses = [np.array([row.best("validation_loss") for row in members]) for members in across.values()]
        means = [float(values.mean()) for values in losses]
        if len(sweeps) == 1:
            bars = [float(spread(values)) for values in losses]
            ax.errorbar(list(across), means, bars, color=color, marker=marker, capsize=2.5)
            continue
        ax.plot(list(across), means, color=color, ls=line, marker=marker, alpha=alpha, label=f"rate {lr:g}")
    chosen = {} if config is None else sweeps.get(config.lr, {})
    seeds = [(tau, row.best("validation_loss")) for tau, members in chosen.items() for row in members]
    if config is not None and seeds and len(sweeps) > 1:
        ax.plot(*zip(*seeds, strict=True), ".", color=INK, ms=2.5, label=f"seeds at rate {config.lr:g}")
    ax.axvline(paper, color=FAINT, ls=(0, (4, 2)), lw=1.2, label=f"the paper's optimum, {paper:g}")
    tau = None if config is None else float(config.estimator.to_dict()[name])
    if tau in chosen:
        mean = float(np.mean([loss for at, loss in seeds if at == tau]))
        ax.plot(tau, mean, "*", ms=14, mfc=color, mec=INK, ls="none", label=f"chosen, {tau:g}")


def _counts(ax: Axes, sweeps: Mapping[float, dict[float, list[Row]]], below: float) -> None:
    """How many runs ended with a validation loss below this, one row of numbers per rate."""
    for y, across in enumerate(sweeps.values()):
        for tau, members in across.items():
            count = sum(row.last("validation_loss") < below for row in members)
            ax.text(tau, y, str(count), ha="center", va="center", size=7)
    ax.margins(x=0.03)
    ax.set(ylim=(-0.6, len(sweeps) - 0.4))
    ax.set_yticks(range(len(sweeps)), [f"{lr:g}" for lr in sweeps])
    n = len({row.run.seed for across in sweeps.values() for members in across.values() for row in members})
    ax.set_title(f"seeds of {n} that converged, by learning rate", fontsize=9, fontweight="normal")
    ax.tick_params(axis="y", length=0)
    ax.grid(False)
    ax.spines["left"].set_visible(False)


def _search_caption(rows: Rows, task: str, sweep: Sweep, by_rate: Mapping[float, Cells], counted: bool) -> str:
    several, lr, ours = len(by_rate) > 1, sweep.lr, sweep.chosen
    lost = [row for row in sweep.runs if not row.done]
    chosen = "The search is not done."
    if ours is not None:
        rates = f", both at {len(by_rate)} learning rates" if several else ""
        rate = f", learning rate {lr:g}" if several else ""
        chosen = (
            f"First τf is swept, then τb at the best τf{rates}: the search ends at τf = {ours[0]:g}, τb = {ours[1]:g}"
            f"{rate} (the paper's at {OPTIMA[task][0]:g}, {OPTIMA[task][1]:g})."
        )
    count = count_text(len(members) for runs_at in by_rate.values() for members in runs_at.values())
    where = ", one line per learning rate" if several else sweep.where
    bars = "; bars: one standard deviation" if not several else "; dots: the seeds at the chosen rate" * bool(ours)
    edge = sweep.on_edge(ours) if ours else ""
    text = f"{chosen}{edge} Points: mean over n = {count} search seeds{where}{bars}."
    if counted:
        text += _converged(by_rate, converged_below(rows), lost)
    return text + lost_text(
        Counter((f, b) for f, b, _ in (row.taus for row in lost) if f is not None and b is not None)
    )


def _converged(by_rate: Mapping[float, Cells], below: float, diverged: list[Row]) -> str:
    parts = []
    for lr, runs_at in by_rate.items():
        ends = [row.last("validation_loss") for members in runs_at.values() for row in members]
        n = len(ends) + sum(row.run.config["lr"] == lr for row in diverged)
        parts.append(f"{sum(end < below for end in ends)} of {n} at {lr:g}")
    return (
        f" Numbers: the seeds that converged, as claim C2 has it, with a last validation loss below {below:.4g} nats; "
        f"runs in all: {listing(parts)}."
    )
