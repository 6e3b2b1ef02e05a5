"""The pictures of docs/performance.md and docs/circuits.md from benchmarks/results.csv: cost against size.

python benchmarks/plot.py [estimators] [fleets] [logic]
"""

import csv
import re
import sys
from collections.abc import Callable
from pathlib import Path

from dst_lab.cards import estimator as card
from dst_lab.cards import title
from dst_lab.figures.style import FAINT, INK, panels, settle, styled, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

HERE = Path(__file__).parent
PASSES = 5 * 4 / 4.3e12 * 1e3
"""Milliseconds of the floor for an element: five passes of float32 at 4.3 TB/s."""
OURS, PEER, THIRD = card("decoupled"), card("softmax_ste"), card("gumbel_ste")


def rows(benchmark: str, what: str) -> list[tuple[list[int], float]]:
    """(the numbers of its size, milliseconds) of each, the latest measurement of a size."""
    with (HERE / "results.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if (row["benchmark"], row["what"]) == (benchmark, what)]
    latest = {row["size"]: float(row["p50_ms"]) for row in found}
    sizes = {size: [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", size)] for size in latest}
    return sorted((sizes[size], ms) for size, ms in latest.items())


def logarithmic(ax: Axes, x: str, y: str, title: str) -> None:
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=title)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def estimator(ax: Axes, benchmark: str, column: int, x: str, title: str) -> None:
    for what, name, look in (
        ("decoupled, kernels, replayed", "Decoupled ST, kernels", OURS),
        ("F.gumbel_softmax, replayed", "F.gumbel_softmax", PEER),
    ):
        points = rows(benchmark, what)
        ax.plot(
            [size[column] for size, _ in points],
            [ms for _, ms in points],
            color=look.color,
            linestyle=look.line,
            marker=look.marker,
            label=name,
        )
    sizes = [size for size, _ in rows(benchmark, "decoupled, kernels, replayed")]
    ax.plot(
        [size[column] for size in sizes],
        [PASSES * size[0] * size[1] for size in sizes],
        color=FAINT,
        linestyle=":",
        label="floor: five passes at 4.3 TB/s",
    )
    logarithmic(ax, x, "forward and backward, ms", title)
    ax.legend()


def fleets(ax: Axes) -> None:
    for task, look in (
        ("stochastic-binary", OURS),
        ("categorical-autoencoder", PEER),
        ("logic-gates", THIRD),
    ):
        points = rows(f"{task} against runs", "fleet, whole step")
        ax.plot(
            [size[0] for size, _ in points],
            [1e3 * ms / size[0] for size, ms in points],
            color=look.color,
            linestyle=look.line,
            marker=look.marker,
            label=title(task),
        )
    logarithmic(ax, "runs in the fleet", "a run's share of a step, microseconds", "Against the fleet")
    ax.legend()


def neurons(ax: Axes) -> None:
    points = rows("logic-gates against neurons", "one network")
    ax.plot([size[0] * size[1] / 1e3 for size, _ in points], [1e3 * ms for _, ms in points], color=INK, marker="o")
    ax.set(xlabel="gates in four layers, thousands", ylabel="a training step, microseconds", xlim=(0, None))
    ax.set(title="Against neurons: one logic network", ylim=(0, None))


def gates_and_memory(name: str) -> list[tuple[int, float, float]]:
    """(gates, milliseconds per step, GiB at the peak) of the large logic networks, the latest of each size."""
    with (HERE / "results.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["benchmark"] == "logic-scale" and "H200" in row["device"]]
    latest = {row["size"]: row for row in found if row["what"].startswith(name)}
    points = []
    for size, row in latest.items():
        layers, width = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", size)[:2])
        peak = re.search(r"peak ([\d.]+)", row["what"])
        points.append((layers * width, float(row["p50_ms"]), float(peak[1]) if peak else float("nan")))
    return sorted(points)


def draw_estimators() -> Figure:
    figure, (against_k, against_batch) = panels(2, width=4.6)
    estimator(against_k, "categorical against K", 1, "K, at 16.8 million elements", "Against K")
    against_k.set(yscale="linear", ylim=(0, None))
    estimator(against_batch, "categorical against batch", 0, "rows of K = 32", "Against the batch")
    against_batch.set(ylim=(0.01, None))
    return figure


def draw_fleets() -> Figure:
    figure, (against_runs, against_neurons) = panels(2, width=4.6)
    fleets(against_runs)
    neurons(against_neurons)
    return figure


def draw_logic() -> Figure:
    figure, (step, memory) = panels(2, width=4.6)
    for name, look in (("constant", OURS), ("self-set", THIRD)):
        points = gates_and_memory(name)
        style = {"color": look.color, "linestyle": look.line, "marker": look.marker, "label": f"{name} temperatures"}
        step.plot([gates for gates, _, _ in points], [ms for _, ms, _ in points], **style)
        memory.plot([gates for gates, _, _ in points], [peak for _, _, peak in points], **style)
    floor = gates_and_memory("floor")
    step.plot([x for x, _, _ in floor], [ms for _, ms, _ in floor], color=FAINT, linestyle=":", label="floor: bytes")
    logarithmic(step, "gates", "a training step, ms", "Step of one logic network")
    logarithmic(memory, "gates", "peak memory, GiB", "Memory of one logic network")
    step.legend()
    memory.legend()
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "estimators": draw_estimators,
    "fleets": draw_fleets,
    "logic": draw_logic,
}


def main() -> None:
    with styled():
        for name in sys.argv[1:] or PICTURES:
            figure = PICTURES[name]()
            settle(figure)
            (HERE.parent / "docs" / f"cost-{name}.svg").write_bytes(write(figure, "svg"))


if __name__ == "__main__":
    main()
