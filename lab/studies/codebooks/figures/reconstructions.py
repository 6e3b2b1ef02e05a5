"""Images as they come back through a codebook."""

from collections.abc import Mapping

from dst_lab.figures.style import Drawn, absent, panels
from dst_lab.records import Array, Row, Rows
from matplotlib.axes import Axes

from studies.codebooks.claims import PSNR, method_arm
from studies.codebooks.recipes import METHODS, SIZES


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
        _row(axes[0], text, images, place, len(shown))
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


def _row(ax: Axes, text: str, images: Array, place: int, rows: int) -> None:
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
