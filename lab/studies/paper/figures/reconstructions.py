"""What an autoencoder makes of its inputs, with the codes it puts them through."""

import math

from dst_lab.figures.curves import lost, recipes_of, unsettled
from dst_lab.figures.style import Drawn, absent, number, panels
from dst_lab.records import Array, Row, Rows, Setting
from matplotlib.axes import Axes

from studies.paper.claims.tasks import CATAE, ROLES

TASK = CATAE.task
ACROSS = 4


def strip(rows: Rows) -> Drawn:
    """Autoencoder: eight validation images by each estimator's run of middling loss."""
    settings = rows.settings(TASK, ROLES)
    missing, recipes = unsettled(rows, TASK, ROLES, settings), recipes_of(rows, TASK, ROLES)
    runs = {role: middling(setting.rows) for role, setting in settings.items()}
    kept = {role: rows.store.artefacts(row.run.id) for role, row in runs.items()}
    kept = {role: arrays for role, arrays in kept.items() if {"reconstructions", "codes"} <= arrays.keys()}
    title = "Reconstructions, autoencoder"
    if not kept:
        figure, (ax,) = panels(1)
        absent(ax, missing or ["reconstructions of the chosen settings"])
        return Drawn(title, figure, "", 1, missing, recipes)
    first = next(iter(kept.values()))
    shown = [("The images", first["inputs"], [""] * len(first["inputs"]))] if "inputs" in first else []
    for role, arrays in kept.items():
        codes = ["".join(map(str, code)) for code in arrays["codes"]]
        loss = number(runs[role].last("validation_loss"))
        shown.append(
            (f"{settings[role].look.label}: {loss} nats, {len(set(codes))} codes", arrays["reconstructions"], codes)
        )
    figure, axes = panels(len(shown), width=2.9, height=2.3)
    figure.set_layout_engine("none")  # it would take the images for labels that need room
    for ax, (text, images, below) in zip(axes, shown, strict=True):
        ax.set_axis_off()
        ax.set_position((0.03, 0.02, 0.94, 0.84))
        ax.set_title(text, fontsize=9, fontweight="normal")
        _tile(ax, images, below)
    caption = _caption(settings, len(first["codes"])) + lost(rows, TASK, ROLES)
    return Drawn(title, figure, caption, len(shown), missing, recipes)


def _tile(ax: Axes, images: Array, below: list[str]) -> None:
    side = math.isqrt(images.shape[-1])
    for i, (image, text) in enumerate(zip(images.reshape(-1, side, side), below, strict=True)):
        down, across = divmod(i, ACROSS)
        place = ax.inset_axes((across / ACROSS + 0.01, 0.5 - 0.5 * down + 0.09, 0.23, 0.4))
        place.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
        place.set_xlabel(text, fontsize=8, labelpad=2)


def middling(rows: list[Row]) -> Row:
    """The run with the median last validation loss (the lower of two)."""
    ordered = sorted(rows, key=lambda row: (row.last("validation_loss"), row.run.seed))
    return ordered[(len(ordered) - 1) // 2]


def _caption(settings: dict[str, Setting], count: int) -> str:
    n = sorted({setting.n for setting in settings.values()})
    return (
        f"The first {count} validation images as each estimator's autoencoder gives them back, with the code of each "
        f"image below it (one digit a latent). Above, the run's validation loss, and how many codes these {count} got: "
        "images that share one come back the same. Shown is the run of median loss among "
        f"n = {n[0] if len(n) == 1 else f'{n[0]} to {n[-1]}'} seeds."
    )
