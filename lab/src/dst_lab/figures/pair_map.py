"""A map over any two fields that were varied."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dst_lab.figures.heat_map import fence
from dst_lab.figures.style import HEIGHT, MAP, Drawn, listing, number, panels, safe
from dst_lab.figures.sweeps import flat
from dst_lab.records import Setting
from dst_lab.records.fields import by_size
from dst_lab.runs import complete


def pair_map(settings: Sequence[Setting], down: str, across: str, others: Sequence[str], where: str) -> Drawn:
    """A cell per pair of values, equally large: the best setting that has both, by its mean over seeds; `others` are
    the names of what else was varied."""
    losses: dict[tuple[str, str], float] = {}
    for one in settings:
        fields = flat(complete(one.config))
        pair = _text(fields.get(down)), _text(fields.get(across))
        if one.n:
            mean = float(np.mean([row.best("validation_loss") for row in one.rows]))
            losses[pair] = min(mean, losses.get(pair, math.inf))
    rows, columns = (sorted({pair[i] for pair in losses}, key=by_size) for i in (0, 1))
    cells = np.full((len(rows), len(columns)), np.nan)
    for (row, column), loss in losses.items():
        cells[rows.index(row), columns.index(column)] = loss
    figure, (ax,) = panels(1, height=HEIGHT + 0.3)
    end = fence(losses.values(), -1)
    mesh = ax.pcolormesh(cells, cmap=f"{MAP}_r", vmax=end)
    extend = "neither" if end is None else "max"
    bar = ax.figure.colorbar(mesh, ax=ax, label="lowest validation loss", pad=0.02, extend=extend, extendfrac=0.03)
    bar.outline.set_visible(False)
    for axis, texts in ((ax.xaxis, columns), (ax.yaxis, rows)):
        axis.set_ticks(np.arange(len(texts)) + 0.5, [safe(text) for text in texts])
        axis.set_tick_params(length=0)
    ax.set(xlabel=safe(across), ylabel=safe(down))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    best = min(losses, key=lambda pair: losses[pair])
    rest = f", whatever its {listing(others)}" if others else ""
    caption = (
        f"Brighter is better. A cell is the best setting with its two values{rest}: the mean over "
        f"{settings[0].seeds_text}. The lowest, {number(losses[best], 4)}, lies at {down} = {best[0]}, "
        f"{across} = {best[1]}."
    )
    return Drawn(f"Map of the two fields that mattered most, {where}", figure, caption)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
