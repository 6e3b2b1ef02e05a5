"""Accuracy against gates and against training minutes, with every published point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from dst_lab.cards import estimator
from dst_lab.figures.style import FAINT, INK, Drawn, absent, listing, panels, plain_logarithm
from dst_lab.records import Row, Rows
from matplotlib.axes import Axes

from studies.convolutional.claims import ATTEMPTS, METRIC, judged, minutes, own, percent

GATES = "gates_simplified"
NAMES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
NETS = {"cifar10-s": "S", "cifar10-m": "M", "cifar10-b": "B", "mnist-s": "S", "mnist-m": "M", "mnist-l": "L"}


@dataclass(frozen=True)
class Published:
    """What others report: per cent of the test images, and gates or minutes of training."""

    label: str
    accuracy: float
    gates: float = 0.0
    minutes: float = 0.0


PAPER, DENSE, REPEATED = "LogicTreeNet (2024)", "dense logic networks", "torchlogix, trained by others"
PUBLISHED = {
    "cifar10": {
        PAPER: [
            Published("S", 60.38, 0.40e6),
            Published("M", 71.01, 3.08e6),
            Published("B", 80.17, 16.0e6),
            Published("L", 84.99, 28.9e6),
            Published("G", 86.29, 61.0e6),
        ],
        DENSE: [
            Published("LILogic", 57.66, 64e3),
            Published("LILogic", 60.98, 256e3),
            Published("difflogic", 62.14, 5.12e6, 90.3 * 60),
        ],
        REPEATED: [
            Published("S", 57.37, minutes=4.97 * 60),
            Published("S, structured wiring", 60.63, minutes=4.97 * 60),
            Published("M", 69.57, minutes=25.5 * 60),
            Published("M, structured wiring", 71.65, minutes=35.7 * 60),
            Published("M, A100", 66.13, minutes=3.5 * 60),
            Published("M, its author", 67.5, minutes=30),
        ],
    },
    "mnist": {
        PAPER: [
            Published("S", 98.46, 147e3),
            Published("M", 99.23, 566e3),
            Published("L", 99.35, 1.27e6),
        ],
        DENSE: [
            Published("LILogic", 98.45, 8e3),
            Published("LILogic", 98.95, 32e3),
            Published("difflogic", 98.47, 384e3),
        ],
    },
    "fashion-mnist": {
        DENSE: [
            Published("difflogic", 87.17, 48e3),
            Published("LILogic", 90.26, 64e3),
            Published("LILogic", 90.61, 128e3),
        ],
    },
}
"""From Petersen et al. (2024, table 6), LILogicNet (2511.12340), difflogic (Petersen et al., 2022) and, for torchlogix,
iraklisanagno/DLCA_DLGN and ligerlac/torchlogix issues 35 and 37. Others' minutes are of other GPUs."""
MARKS = {PAPER: "o", DENSE: "s", REPEATED: "D"}


def gates(rows: Rows) -> Drawn:
    """Accuracy against gates after simplification."""

    def ours(dataset: str) -> dict[str, tuple[float, float]]:
        found = {}
        for net in NETS:
            runs = [row for row in judged(rows, net, dataset) if row.has(GATES)]
            if runs:
                found[NETS[net]] = fmean(row.last(GATES) for row in runs), fmean(map(percent, runs))
        for row in _beyond(rows, dataset):
            if row.has(GATES):
                found[f"{NETS[row.run.config['net']]}, own inputs"] = row.last(GATES), percent(row)
        return found

    remark = (
        "Ours: gates after simplification, without the adders of the class sums; own inputs: edges and a teacher. "
        "LogicTreeNet's are after synthesis, adders included; those of dense networks as trained."
    )
    return _against("Accuracy against gates", list(NAMES), "gates", ours, lambda one: one.gates, remark)


def time(rows: Rows) -> Drawn:
    """Accuracy against minutes of training."""

    def ours(dataset: str) -> dict[str, tuple[float, float]]:
        found = {}
        for net in NETS:
            for attempt in ATTEMPTS:
                if runs := judged(rows, net, dataset, attempt):
                    steps = f", {runs[0].run.config['steps']:,} steps" if attempt else ""
                    spent = fmean(minutes(rows, row) for row in runs)
                    found[f"{NETS[net]}{steps}"] = spent, fmean(map(percent, runs))
        for row in _beyond(rows, dataset):
            found[f"{NETS[row.run.config['net']]}, own inputs"] = minutes(rows, row), percent(row)
        return found

    remark = (
        "Ours: on one H200 that other runs used at the same time; own inputs: edges and a teacher. Others: as they "
        "report, on their GPUs; the paper states no time."
    )
    label = "minutes of training"
    return _against("Accuracy against training time", ["cifar10"], label, ours, lambda one: one.minutes, remark)


def _beyond(rows: Rows, dataset: str) -> list[Row]:
    """The tested runs with edges and a teacher."""
    return [row for row in own(rows) if row.has(METRIC) and row.run.config["dataset"].startswith(dataset)]


def _against(
    title: str,
    datasets: Sequence[str],
    label: str,
    ours: Callable[[str], dict[str, tuple[float, float]]],
    of: Callable[[Published], float],
    remark: str,
) -> Drawn:
    """One panel per data set, what is published and ours."""
    drawn = {dataset: points for dataset in datasets if (points := ours(dataset))}
    figure, axes = panels(max(len(drawn), 1), height=3.6)
    if not drawn:
        missing = ["the judging runs"]
        absent(axes[0], missing)
        return Drawn(title, figure, "", 1, missing)
    said = list[str]()
    for ax, (dataset, points) in zip(axes, drawn.items(), strict=True):
        for what, marker in MARKS.items():
            there = [one for one in PUBLISHED.get(dataset, {}).get(what, []) if of(one)]
            if there:
                x, y = [of(one) for one in there], [one.accuracy for one in there]
                ax.plot(x, y, ls="", marker=marker, mfc="none", color=FAINT, label=what)
            _named(ax, [(one.label, of(one), one.accuracy) for one in there], FAINT, above=True)
        look = estimator("decoupled")
        ax.plot(*zip(*points.values(), strict=True), ls="", marker="*", ms=9, color=look.color, label="ours")
        # The judged networks below their stars; earlier attempts, which have their steps in the name, above.
        for name, point in points.items():
            _named(ax, [(name, *point)], INK, above="steps" in name)
        said.append(f"{NAMES[dataset]} " + listing([f"{name} {y:.2f}%" for name, (_, y) in points.items()]))
        ax.set_title(NAMES[dataset])
        ax.set_xscale("log")
        ax.margins(0.2, 0.1)
        plain_logarithm(ax.xaxis, 20)
        ax.set_xlabel(label)
        ax.legend(loc="best", fontsize=7)
    axes[0].set_ylabel("accuracy on test images (%), argmax")
    return Drawn(title, figure, f"{'; '.join(said)}. {remark}", len(drawn))


def _named(ax: Axes, points: Sequence[tuple[str, float, float]], color: str, *, above: bool) -> None:
    offset = (5, 4 if above else -10)
    for name, x, y in points:
        ax.annotate(name, (x, y), textcoords="offset points", xytext=offset, fontsize=6.5, color=color)
