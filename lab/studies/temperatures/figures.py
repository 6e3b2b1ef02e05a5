"""Loss against the learning rate for the rule and for constants, and the temperatures that the rule sets by layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dst_lab.cards import estimator, metric, title
from dst_lab.figures.style import FAINT, INK, Drawn, absent, letter, listing, panels, plus_minus
from dst_lab.records import Array, Row, Rows, spread
from dst_lab.runs import Config
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from studies.temperatures.claims import CONVERGED
from studies.temperatures.settings import RULE, TUNED, WITHOUT_STEPS

AUTOENCODER: type[Config] = CategoricalAutoencoderConfig
NETWORK: type[Config] = StochasticBinaryConfig
GATES: type[Config] = LogicGatesConfig
LOSS = "validation_loss"
RATES = ("self-autoencoder", "self-untold", "self-network", "tuned-constants", "best-constants")
COURSES = ("self-autoencoder", "self-network", "self-gates")
DECOUPLED = estimator("decoupled")


@dataclass(frozen=True)
class Line:
    """Runs by learning rate, under one name."""

    label: str
    runs: Mapping[float, Sequence[Row]]
    look: Mapping[str, Any]

    def losses(self, lr: float) -> Array:
        return np.array([row.best(LOSS) for row in self.runs[lr]])


def rates(rows: Rows) -> Drawn:
    """The lowest validation loss against the learning rate: a panel per task, a line per way to set temperatures."""
    figure, axes = panels(2, height=3.5)
    parts, missing = [], []
    for ax, task in zip(axes, (AUTOENCODER, NETWORK), strict=True):
        trained = [line for line in lines(rows, task) if line.runs]
        if not trained:
            missing += (lack := _lacking(rows, task))
            absent(ax, lack)
            continue
        for line in trained:
            _draw(ax, line)
        ticks = sorted({lr for line in trained for lr in line.runs})
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{value:g}" for value in ticks])
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set(xlabel="learning rate", ylabel=metric(LOSS, task.task).axis, title=title(task.task))
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.19), ncols=1)
        name = title(task.task)
        parts.append(f"{name[:1].upper()}{name[1:]}: {'; '.join(_line_text(line, task) for line in trained)}")
    caption = f"Lowest validation loss over training, mean ± standard deviation over runs. {'. '.join(parts)}."
    return Drawn("Loss against the learning rate", figure, caption if parts else "", 2, missing, RATES)


def _lacking(rows: Rows, task: type[Config]) -> list[str]:
    """What the store lacks of the recipes that have runs of the task, in words."""
    own = [recipe for recipe in RATES if any(config.task == task.task for config in rows.wanted(recipe))]
    return [text for recipe in own for text in rows.missing(recipe, task.task)]


def courses(rows: Rows) -> Drawn:
    """tau_f and tau_b over training as the rule set them, by layer, one line per layer and learning rate."""
    figure, axes = panels(2, height=3.6)
    names, missing = set[str](), list[str]()
    for ax, name in zip(axes, ("tau_f", "tau_b"), strict=True):
        drawn = [_courses(ax, rows, task, name) for task in (AUTOENCODER, NETWORK, GATES)]
        names |= {text for text in drawn if text}
        if not any(drawn):
            lack = [text for recipe in COURSES for text in rows.missing(recipe, _task_of(recipe).task)]
            missing += lack
            absent(ax, lack)
            continue
        ax.set(xlabel="share of training", ylabel=letter(name), xlim=(0, 1))
        if name == "tau_f":
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            ax.set_ylim(bottom=0)
        ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.19), ncols=2, columnspacing=1.0)
    caption = (
        "Temperatures over training, mean over seeds, one line per layer (the first is the thickest) at the learning "
        f"rate of the paper's searches: {listing(sorted(names))}."
    )
    return Drawn("What the rule sets", figure, caption if names else "", 2, missing, COURSES)


def lines(rows: Rows, task: type[Config]) -> list[Line]:
    """The rule with and without the number of steps, tuned constants on the same seeds, each rate's best constants."""
    recipe = {AUTOENCODER: "self-autoencoder", NETWORK: "self-network"}[task]
    ours = [*rows.recipe(recipe, task.task, LOSS), *rows.recipe("self-untold", task.task, LOSS)]
    tuned = rows.recipe("tuned-constants", task.task, LOSS)
    best = _by_rate(rows.recipe("best-constants", task.task, LOSS)) if task is AUTOENCODER else _best(ours)
    grey = {"color": FAINT, "marker": "s"}
    lines = [
        Line("the rule", _by_rate(ours, RULE), {"color": DECOUPLED.color, "marker": DECOUPLED.marker}),
        Line(
            "the rule, steps not told",
            _by_rate(ours, WITHOUT_STEPS),
            {"color": DECOUPLED.color, "marker": "v", "ls": (0, (4, 2)), "mfc": "white"},
        ),
        Line("the best constants at each rate" + ", their search's seeds" * (task is AUTOENCODER), best, grey),
    ]
    if task is AUTOENCODER:
        lines.append(Line("the tuned constants", _by_rate(tuned), {"color": INK, "marker": "D", "ls": ""}))
    return lines


def _by_rate(runs: Sequence[Row], rule: str | None = None) -> dict[float, list[Row]]:
    """The runs by learning rate; those of a rule, where it is given."""
    by_rate: dict[float, list[Row]] = {}
    for row in runs:
        if rule in (None, row.run.config["estimator"]["tau_b"]):
            by_rate.setdefault(float(row.run.config["lr"]), []).append(row)
    return dict(sorted(by_rate.items()))


def _best(runs: Sequence[Row]) -> dict[float, list[Row]]:
    """The runs of constants by learning rate: those of the pair with the lowest mean loss there."""
    pairs: dict[float, dict[float, list[Row]]] = {}
    for row in runs:
        tau_b = row.run.config["estimator"]["tau_b"]
        if isinstance(tau_b, float):
            pairs.setdefault(float(row.run.config["lr"]), {}).setdefault(tau_b, []).append(row)
    return {
        lr: min(by_pair.values(), key=lambda rows: np.mean([row.best(LOSS) for row in rows]))
        for lr, by_pair in sorted(pairs.items())
    }


def _draw(ax: Axes, line: Line) -> None:
    x = list(line.runs)
    values = [line.losses(lr) for lr in x]
    mean, width = np.array([v.mean() for v in values]), np.array([float(spread(v)) for v in values])
    ax.errorbar(x, mean, width, label=line.label, capsize=2.5, elinewidth=1.0, **line.look)


def _line_text(line: Line, task: type[Config]) -> str:
    cells = []
    for lr, runs in line.runs.items():
        died = sum(row.last(LOSS) >= CONVERGED for row in runs) if task is AUTOENCODER else 0
        lost = f", {died} not converged" if died else ""
        cells.append(f"{plus_minus(line.losses(lr))} at {lr:g} (n = {len(runs)}{lost})")
    return f"{line.label} {listing(cells)}"


def _courses(ax: Axes, rows: Rows, task: type[Config], name: str) -> str:
    """What was drawn, in words; "" where there are no runs."""
    recipe = next(recipe for recipe in COURSES if _task_of(recipe) is task)
    wanted = [config for config in rows.wanted(recipe) if config.estimator.to_dict()["tau_b"] == RULE]
    lr = TUNED[task][2]
    runs = [
        row
        for row in rows.of_status(config for config in wanted if config.lr == lr and config.task == task.task)
        if row.has(name)
    ]
    if not runs:
        return ""
    values = np.stack([_layers(row, name) for row in runs]).mean(0)  # [evaluations, layers]
    steps = runs[0].history[name].steps
    color = {AUTOENCODER: "#0072b2", NETWORK: "#d55e00", GATES: "#009e73"}[task]
    style = {AUTOENCODER: "-", NETWORK: (0, (4, 2)), GATES: (0, (1, 1))}[task]
    for layer in range(values.shape[1]):
        label = title(task.task) if layer == 0 else None
        ax.plot(steps / steps[-1], values[:, layer], color=color, ls=style, lw=2.0 / (1 + 0.6 * layer), label=label)
    return f"{title(task.task)} at {lr:g} (n = {len(runs)}, layers: {values.shape[1]})"


def _layers(row: Row, name: str) -> Array:
    """[evaluations, layers]."""
    values = np.asarray(row.history[name].values, dtype=np.float64)
    return values.reshape(len(values), -1)


def _task_of(recipe: str) -> type[Config]:
    return {"self-autoencoder": AUTOENCODER, "self-network": NETWORK, "self-gates": GATES}[recipe]
