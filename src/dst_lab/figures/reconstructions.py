"""What an autoencoder makes of its inputs, with the codes it puts them through."""

import math

from dst_lab.figures.curves import ROLES, SEARCHES, lost
from dst_lab.figures.rows import Row, Rows
from dst_lab.figures.style import LOOKS, Drawn, absent, number, panels

TASK = "categorical-autoencoder"
ACROSS = 4


def strip(rows: Rows) -> Drawn:
    """Autoencoder: eight validation images by each estimator's run of middling loss."""
    settings = {role: setting for role in ROLES if (setting := rows.setting(TASK, role)) and setting.n}
    missing = [text for recipe in SEARCHES[TASK] for text in rows.missing(recipe, TASK)] if len(settings) < 4 else []
    runs = {role: middling(setting.rows) for role, setting in settings.items()}
    kept = {role: rows.store.artefacts(row.run.id) for role, row in runs.items()}
    kept = {role: arrays for role, arrays in kept.items() if {"reconstructions", "codes"} <= arrays.keys()}
    title = "Reconstructions, autoencoder"
    if not kept:
        figure, (ax,) = panels(1)
        absent(ax, missing or ["reconstructions of the chosen settings"])
        return Drawn(title, figure, "", 1, missing, SEARCHES[TASK])
    figure, axes = panels(len(kept), width=2.9, height=2.3)
    figure.set_layout_engine("none")  # it would take the images for labels that need room
    for ax, (role, arrays) in zip(axes, kept.items(), strict=True):
        ax.set_axis_off()
        ax.set_position((0.03, 0.02, 0.94, 0.84))
        images = arrays["reconstructions"]
        side = math.isqrt(images.shape[-1])
        codes = ["".join(map(str, code)) for code in arrays["codes"]]
        for i, (image, code) in enumerate(zip(images.reshape(-1, side, side), codes, strict=True)):
            down, across = divmod(i, ACROSS)
            place = ax.inset_axes((across / ACROSS + 0.01, 0.5 - 0.5 * down + 0.09, 0.23, 0.4))
            place.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            place.set(xticks=[], yticks=[])
            place.spines[:].set_visible(False)
            place.set_xlabel(code, fontsize=8, labelpad=2)
        loss = runs[role].last("validation_loss")
        ax.set_title(
            f"{LOOKS[role].name}: {number(loss)} nats, {len(set(codes))} codes", fontsize=9, fontweight="normal"
        )
    caption = _caption(settings, len(images)) + lost(rows, TASK, ROLES)
    return Drawn(title, figure, caption, len(kept), missing, (*SEARCHES[TASK], "confirm"))


def middling(rows: list[Row]) -> Row:
    """The run with the median last validation loss (the lower of two)."""
    ordered = sorted(rows, key=lambda row: (row.last("validation_loss"), row.run.seed))
    return ordered[(len(ordered) - 1) // 2]


def _caption(settings: dict, count: int) -> str:  # type: ignore[type-arg]
    n = sorted({setting.n for setting in settings.values()})
    return (
        f"The first {count} validation images as each estimator's autoencoder gives them back, with the code of each "
        f"image below it (one digit a latent). Images that share a code come back the same: fewer codes, less told "
        f"apart. Shown is the run of median loss among n = {n[0] if len(n) == 1 else f'{n[0]} to {n[-1]}'} seeds."
    )
