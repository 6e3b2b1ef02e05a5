"""Accuracy against gates, minutes and images per second, with the published numbers."""

import csv
from typing import Any

from dst_lab.cards import estimator
from dst_lab.figures.style import FAINT, INK, Drawn, absent, listing, panels, plain_logarithm
from dst_lab.records import Row, Rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.circuits.claims import METRIC, TASK, accuracy, seconds_of
from studies.circuits.recipes import SIZES

RECIPES = tuple(f"circuits-{name}" for name in SIZES)
PUBLISHED = "published: soft, discretised"
MEASURED = "circuits.csv"
"""The trained networks as circuits, one per line, next to the records: `results.measure_circuits` writes it."""


def minutes(rows: Rows) -> Drawn:
    """Accuracy on the test images over the minutes of training, one line per size."""
    figure, (ax,) = panels(1, width=5.6, height=3.6)
    trained = _trained(rows)
    if not trained:
        return _nothing(rows, figure, ax, "Accuracy against training time")
    look = estimator("decoupled")
    for number, (name, runs) in enumerate(trained.items()):
        for row in runs:
            steps, values = row.history[METRIC].steps, 100 * row.values(METRIC)
            spent = seconds_of(rows, row) / 60 * steps / steps[-1]
            shade = 0.35 + 0.65 * number / max(len(trained) - 1, 1)
            ax.plot(spent, values, color=look.color, alpha=shade, lw=1.4)
            label = _label(name) if row is runs[0] else None
            ax.plot(spent[-1], values[-1], marker=look.marker, color=look.color, alpha=shade, label=label)
        ax.axhline(SIZES[name].published, color=FAINT, lw=0.8, ls=(0, (4, 2)))
    ax.legend(loc="lower right")
    ax.set_xscale("log")
    plain_logarithm(ax.xaxis, 1e4)
    ax.set_xlabel("minutes since training began on one GPU, evaluations included")
    ax.set_ylabel("accuracy on test images (%), argmax")
    ends = [f"{_label(name)} {accuracy(runs):.2f}% (n = {len(runs)})" for name, runs in trained.items()]
    caption = (
        f"The discretised networks over training: {listing(ends)}. Networks of one fleet are trained at the same time. "
        "Dashed: the published accuracies."
    )
    return Drawn("Accuracy against training time", figure, caption, 1, _missing(rows), RECIPES)


def gates(rows: Rows) -> Drawn:
    """Accuracy against gates, as trained and after simplification."""
    remark = "The published networks stand at their number of gates as trained."
    return _against(rows, "gates", "gates after simplification", "simplified", remark)


def speed(rows: Rows) -> Drawn:
    """Accuracy against images per second of the compiled circuit."""
    remark = "The circuits, simplified and compiled, on one thread of a CPU that others used too."
    return _against(rows, "speed", "images per second, one thread", "images_per_s", remark)


def measured(rows: Rows) -> dict[str, dict[str, float]]:
    """The numbers of each network as a circuit, by run; empty where there is no such file.

    `gates` as trained and `simplified`; `depth`, of the simplified circuit; `correct` test images of the compiled
    circuit; `images_per_s` of it on one thread; `simplify_s` and `compile_s`.
    """
    place = rows.store.path
    file = (place if place.is_dir() else place.parent) / MEASURED
    if not file.is_file():
        return {}
    with file.open(newline="") as lines:
        return {
            line.pop("run"): {name: float(value) for name, value in line.items() if name != "device"}
            for line in csv.DictReader(lines)
        }


def _against(rows: Rows, what: str, label: str, number: str, remark: str) -> Drawn:
    title, published = f"Accuracy against {what}", what == "gates"
    figure, (ax,) = panels(1, width=5.6, height=3.6)
    known = measured(rows)
    by_size = {
        name: pairs
        for name, runs in _trained(rows).items()
        if (pairs := [(row, known[row.run.id]) for row in runs if row.run.id in known])
    }
    if not by_size:
        return _nothing(rows, figure, ax, title)
    look, means = estimator("decoupled"), list[str]()
    for name, pairs in by_size.items():
        x, y = [one[number] for _, one in pairs], [100 * row.last(METRIC) for row, _ in pairs]
        ax.plot(x, y, ls="", marker=look.marker, color=look.color, label=look.label if not means else None)
        # On the side that the next size is not on; the largest has none.
        left = published is (name != list(SIZES)[-1])
        offset, side = (-6, "right") if left else (6, "left")
        place: dict[str, Any] = {"xytext": (offset, 3), "textcoords": "offset points", "ha": side}
        ax.annotate(_label(name), (x[0], max(y)), **place, fontsize=7, color=INK)
        means.append(f"{_label(name)}: {sum(x) / len(x):,.0f}")
    if published:
        points = [(size.gates, size.published) for size in SIZES.values()]
        ax.plot(
            *zip(*points, strict=True), marker="o", mfc="none", color=FAINT, ls=(0, (4, 2)), lw=0.8, label=PUBLISHED
        )
        ax.legend(loc="lower right")
    ax.margins(x=0.25)
    ax.set_xscale("log")
    plain_logarithm(ax.xaxis, 1e4)
    ax.set_xlabel(label)
    ax.set_ylabel("accuracy on test images (%), argmax")
    return Drawn(title, figure, f"{label.capitalize()}: {listing(means)}. {remark}", 1, _missing(rows), RECIPES)


def _trained(rows: Rows) -> dict[str, list[Row]]:
    """The finished runs of each size that has any."""
    by_size = {name: rows.recipe(f"circuits-{name}", TASK, METRIC) for name in SIZES}
    return {name: runs for name, runs in by_size.items() if runs}


def _missing(rows: Rows) -> list[str]:
    return [text for recipe in RECIPES for text in rows.missing(recipe, TASK)]


def _nothing(rows: Rows, figure: Figure, ax: Axes, title: str) -> Drawn:
    missing = _missing(rows) or [MEASURED]
    absent(ax, missing)
    return Drawn(title, figure, "", 1, missing, RECIPES)


def _label(name: str) -> str:
    size = SIZES[name]
    return f"{size.layers} x {size.width:,}"
