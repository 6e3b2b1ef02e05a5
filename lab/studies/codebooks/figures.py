"""Every figure of the study, from a store alone: quality and cost as the codebook grows, and images."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from dst_lab.cards import metric
from dst_lab.figures.style import Drawn, absent, panels, plain_logarithm
from dst_lab.plans.plan import seeded
from dst_lab.records import Array, Row, Rows
from matplotlib.axes import Axes

from studies.codebooks.claims import PSNR, method_arm
from studies.codebooks.recipes import METHODS, SEEDS, SIZES, TASK, chosen_at, short

Find = Callable[[Rows, str, str], Sequence[Row]]


def quality(rows: Rows) -> Drawn:
    """PSNR and usage against the number of codes."""
    parts = {"test_psnr_argmax": False, "test_usage_argmax": False}
    lacking = [lack for size in SIZES for name in METHODS for lack in method_arm(rows, size, name).missing]
    caption = (
        "Each method at the setting that its search chose at the middle size. Line: mean "
        f"over at most {len(SEEDS)} fresh seeds; each run is a small dot. Test images, codes by argmax; usage is the "
        "share of codes that at least one of all test tokens chooses."
    )
    return _draw(rows, "Reconstruction and usage", parts, _chosen, lacking, caption, ["codebook-sizes"])


def cost(rows: Rows) -> Drawn:
    """Memory and time against the number of codes."""
    parts = {"peak_mib": True, "step_ms": True}
    caption = (
        "Short runs, each alone on its device: the peak of memory beyond the images (the network, its optimiser and a "
        "batch are in it), and the time of a training step. Every method finds its codes by the same streaming search. "
        "Memory is comparable to a factor of two at best, above all where runs are of different sessions."
    )
    lacking = rows.missing("codebook-cost", TASK)
    return _draw(rows, "Memory and time", parts, _short, lacking, caption, ["codebook-cost"])


def _draw(
    rows: Rows, title: str, parts: dict[str, bool], find: Find, lacking: list[str], caption: str, recipes: list[str]
) -> Drawn:
    """One panel per metric; True where its axis is logarithmic."""
    figure, axes = panels(len(parts), width=4.6, height=3.9)
    for ax, (name, logarithmic) in zip(axes, parts.items(), strict=True):
        shown = [_line(ax, rows, name, method, find) for method in METHODS]
        if not any(shown):
            absent(ax, lacking[:3] or ["these runs"])
            continue
        ax.set_xscale("log", base=2)
        if logarithmic:
            ax.set_yscale("log")
            plain_logarithm(ax.yaxis)
        sizes = list(SIZES.values())
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        ax.set(xlabel="codes", ylabel=metric(name).axis)
        ax.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return Drawn(title, figure, caption, len(parts), lacking, recipes)


def _line(ax: Axes, rows: Rows, name: str, method: str, find: Find) -> bool:
    """A method's line; False where it has no runs."""
    look, points = METHODS[method], dict[int, list[float]]()
    for size, codes in SIZES.items():
        values = [row.last(name) * metric(name).factor for row in find(rows, size, method) if row.has(name)]
        if values:
            points[codes] = values
    if not points:
        return False
    means = [fmean(values) for values in points.values()]
    ax.plot(list(points), means, color=look.color, marker=look.marker, linestyle=look.line, label=look.label)
    for codes, values in points.items():
        ax.plot([codes] * len(values), values, ".", color=look.color, markersize=2.5)
    return True


def _chosen(rows: Rows, size: str, method: str) -> Sequence[Row]:
    config = chosen_at(rows.chosen, size, method)
    return rows.of_status(seeded([config], SEEDS)) if config else []


def _short(rows: Rows, size: str, method: str) -> Sequence[Row]:
    return rows.of_status([short(size, method)])


def strip(rows: Rows) -> Drawn:
    """Eight validation images by each method's middle run, at the size at which most methods have theirs kept; of
    equals, the largest."""
    size = max(SIZES, key=lambda one: (len(_kept(rows, one)), SIZES[one]))
    missing = [lack for name in METHODS for lack in method_arm(rows, size, name).missing]
    kept = _kept(rows, size)
    title = f"Reconstructions through {SIZES[size]:,} codes"
    if not kept:
        figure, (ax,) = panels(1)
        absent(ax, missing[:3] or ["reconstructions of the chosen settings"])
        return Drawn(title, figure, "", 1, missing, ["codebook-sizes"])
    shown = [("the images", next(iter(kept.values()))[1]["inputs"])]
    for name, (row, arrays) in kept.items():
        shown.append((f"{METHODS[name].label}, {PSNR.of(row):.2f} dB", arrays["reconstructions"]))
    figure, axes = panels(1, width=9.0, height=0.75 * len(shown))
    figure.set_layout_engine("none")  # it would take the images for labels that need room
    axes[0].set_axis_off()
    axes[0].set_position((0.0, 0.0, 1.0, 1.0))
    for place, (text, images) in enumerate(shown):
        _images(axes[0], text, images, place, len(shown))
    caption = (
        f"The first {len(shown[0][1])} validation images as each method's network gives them back, codes "
        "by argmax; the run of middling test PSNR, which stands beside its name."
    )
    return Drawn(title, figure, caption, 1, missing, ["codebook-sizes"])


def _kept(rows: Rows, size: str) -> dict[str, tuple[Row, Mapping[str, Array]]]:
    """Each method's middle run of a size with its images, where they are kept."""
    middle = {name: middling([row for row in method_arm(rows, size, name).rows if row.done]) for name in METHODS}
    arrays = {name: (row, rows.store.artefacts(row.run.id)) for name, row in middle.items() if row is not None}
    return {name: pair for name, pair in arrays.items() if {"inputs", "reconstructions"} <= pair[1].keys()}


def _images(ax: Axes, text: str, images: Array, place: int, rows: int) -> None:
    ax.text(0.24, 1 - (place + 0.5) / rows, text, ha="right", va="center", fontsize=8, transform=ax.transAxes)
    width = 0.74 / len(images)
    for i, image in enumerate(images):
        inset = ax.inset_axes((0.25 + i * width, 1 - (place + 0.97) / rows, 0.96 * width, 0.94 / rows))
        pixels = image.transpose(1, 2, 0)
        inset.imshow(pixels if pixels.shape[-1] == 3 else pixels[..., 0], cmap="gray", vmin=0, vmax=255)
        inset.set_axis_off()


def middling(rows: list[Row]) -> Row | None:
    """The run with the median test PSNR (the lower of two); None where there is none."""
    ordered = sorted(rows, key=lambda row: (PSNR.of(row), row.run.seed))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


FIGURES: dict[str, Callable[[Rows], Drawn]] = {"quality": quality, "reconstructions": strip, "cost": cost}
"""The figures in the order in which they are read."""
