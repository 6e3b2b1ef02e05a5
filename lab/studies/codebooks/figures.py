"""Every figure of the study: quality and perplexity as codes grow many, rate and distortion, images."""

from collections.abc import Callable, Sequence
from statistics import fmean

import matplotlib.image
from dst_lab.cards import metric
from dst_lab.figures.style import FAINT, INK, Drawn, absent, panels
from dst_lab.records import Row, Rows

from studies.codebooks.claims import MODELLED, OURS, SIZES, complete, judged, modelled, name_of

LOOKS = {
    OURS: ("dst.nn.Codebook", "#0072b2", "o"),
    "FSQ": ("FSQ", "#7d7f86", "v"),
    "FSP": ("FSP", "#d55e00", "s"),
    "SimVQ": ("SimVQ", "#cc79a7", "X"),
}
"""Label, colour and marker."""


def quality(rows: Rows) -> Drawn:
    """PSNR and perplexity against the number of codes."""
    figure, axes = panels(2, width=4.4, height=3.7)
    seeds = complete(rows)
    if not seeds:
        for ax in axes:
            absent(ax, ["a complete seed"])
        return Drawn("Reconstruction and perplexity", figure, "", 2, ["a complete seed"])
    for ax, name in zip(axes, ("psnr", "perplexity"), strict=True):
        for method, (label, color, marker) in LOOKS.items():
            found = {codes: _values(judged(rows, codes), method, name) for codes in SIZES}
            ax.plot(SIZES, [fmean(found[codes]) for codes in SIZES], color=color, marker=marker, label=label)
            for codes, values in found.items():
                ax.plot([codes] * len(values), values, ".", color=color, markersize=2.5)
        ax.set_xscale("log", base=2)
        ax.set_xticks(SIZES, [f"{codes:,}" for codes in SIZES])
        ax.minorticks_off()
        ax.set(xlabel="codes", ylabel=metric(name).axis)
    axes[1].set_yscale("log")
    axes[1].set_ylabel("perplexity of the test tokens")
    axes[1].plot(SIZES, SIZES, color=FAINT, lw=0.8, label="all codes alike")
    axes[1].legend(fontsize=7, loc="lower right")
    made = [row.run.config["steps"] for codes in SIZES for row in judged(rows, codes)]
    steps = " to ".join(f"{n:,}" for n in sorted({min(made), max(made)}))
    caption = (
        f"Means over the complete seeds ({len(seeds)}), each run a small dot. After {steps} steps, as many for "
        "each of the four of a seed and size. The 10,000 test images have 640,000 tokens."
    )
    return Drawn("Reconstruction and perplexity", figure, caption, 2)


def rate(rows: Rows) -> Drawn:
    """PSNR against the bits of the tokens under the transformer."""
    figure, (ax,) = panels(1, width=5.2, height=3.7)
    found = {method: modelled(rows, method) for method in LOOKS}
    if not any(found.values()):
        absent(ax, ["the second stage"])
        return Drawn("Rate and distortion", figure, "", 1, ["the second stage"])
    for method, (label, color, marker) in LOOKS.items():
        points = [(row.last("bits"), row.last("psnr")) for _, row in sorted(found[method].items())]
        if points:
            ax.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
    ax.set(xlabel="bits per test image under the transformer", ylabel=metric("psnr").axis)
    ax.legend(fontsize=7, loc="lower right")
    made = sorted({row.run.config["steps"] for rows_of in found.values() for row in rows_of.values()})
    steps = " or ".join(map(str, made))
    sizes = " and ".join(f"{codes:,}" for codes in MODELLED)
    caption = (
        f"Each line: {sizes} codes, one seed, and {steps} steps of the transformer. A point further to the left costs "
        "fewer bits, one higher up is nearer to the image. Uniform codes would cost 576 and 896 bits."
    )
    return Drawn("Rate and distortion", figure, caption, 1)


def pictures(rows: Rows, name: str, labels: Sequence[str], title: str, caption: str) -> Drawn:
    """A grid of images, one labelled row for each method and size, which is a file next to the records."""
    figure, (ax,) = panels(1, width=8.0, height=0.44 * len(labels))
    place = rows.store.path
    file = (place if place.is_dir() else place.parent) / f"{name}.png"
    if not file.is_file():
        absent(ax, [file.name])
        return Drawn(title, figure, "", 1, [file.name])
    grid = matplotlib.image.imread(file)
    ax.imshow(grid, interpolation="nearest")
    side = grid.shape[0] / len(labels)
    ax.set_yticks([side * (i + 0.5) for i in range(len(labels))], labels, fontsize=6, color=INK)
    ax.set_xticks([])
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return Drawn(title, figure, caption, 1)


def reconstructions(rows: Rows) -> Drawn:
    labels = ["the images", *(f"{label}, {codes:,}" for codes in SIZES for label, _, _ in LOOKS.values())]
    return pictures(rows, "reconstructions", labels, "Reconstructions", "The first 8 test images, seed 2000.")


def samples(rows: Rows) -> Drawn:
    labels = [f"{label}, {codes:,}" for codes in MODELLED for label, _, _ in LOOKS.values()]
    caption = "Images from tokens that the transformer draws at temperature 1, not chosen."
    return pictures(rows, "samples", labels, "Samples", caption)


def _values(of: list[Row], method: str, name: str) -> list[float]:
    return [row.last(name) for row in of if name_of(row) == method]


FIGURES: dict[str, Callable[[Rows], Drawn]] = {
    "quality": quality,
    "rate-distortion": rate,
    "reconstructions": reconstructions,
    "samples": samples,
}
"""The figures in the order in which they are read."""
