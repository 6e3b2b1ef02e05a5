"""Accuracy against gates, minutes and images per second, with the published numbers."""

from collections.abc import Callable

from dst_lab.cards import estimator
from dst_lab.figures.style import FAINT, INK, Drawn, absent, listing, panels, plain_logarithm
from dst_lab.records import Row, Rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.circuits import measured
from studies.circuits.claims import METRIC, TASK, accuracy, seconds_of
from studies.circuits.measured import Measured
from studies.circuits.recipes import SIZES

RECIPES = tuple(f"circuits-{name}" for name in SIZES)
PUBLISHED = "published: soft, discretised"


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
    return _against(
        rows, "Accuracy against gates", "gates after simplification", lambda one: one.simplified,
        "The published networks stand at their number of gates as trained.", published=True,
    )  # fmt: skip


def speed(rows: Rows) -> Drawn:
    """Accuracy against images per second of the compiled circuit."""
    return _against(
        rows, "Accuracy against speed", "images per second, one thread", lambda one: one.images_per_s,
        "The circuits, simplified and compiled, on one thread of a CPU that others used too.", published=False,
    )  # fmt: skip


def _against(
    rows: Rows, title: str, label: str, of: Callable[[Measured], float], remark: str, *, published: bool
) -> Drawn:
    figure, (ax,) = panels(1, width=5.6, height=3.6)
    known = measured.read(rows)
    by_size = {
        name: pairs
        for name, runs in _trained(rows).items()
        if (pairs := [(row, known[row.run.id]) for row in runs if row.run.id in known])
    }
    if not by_size:
        return _nothing(rows, figure, ax, title)
    look, means = estimator("decoupled"), list[str]()
    for name, pairs in by_size.items():
        x, y = [of(one) for _, one in pairs], [100 * row.last(METRIC) for row, _ in pairs]
        ax.plot(x, y, ls="", marker=look.marker, color=look.color, label=look.label if not means else None)
        # On the side that the next size is not on; the largest has none.
        left = published is (name != list(SIZES)[-1])
        ax.annotate(
            _label(name), (x[0], max(y)), textcoords="offset points", xytext=(-6 if left else 6, 3),
            ha="right" if left else "left", fontsize=7, color=INK,
        )  # fmt: skip
        means.append(f"{_label(name)}: {sum(x) / len(x):,.0f}")
    if published:
        sizes = SIZES.values()
        ax.plot([size.gates for size in sizes], [size.published for size in sizes], marker="o", mfc="none", color=FAINT,
                ls=(0, (4, 2)), lw=0.8, label=PUBLISHED)  # fmt: skip
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
    missing = _missing(rows) or [measured.NAME]
    absent(ax, missing)
    return Drawn(title, figure, "", 1, missing, RECIPES)


def _label(name: str) -> str:
    size = SIZES[name]
    return f"{size.layers} x {size.width:,}"
