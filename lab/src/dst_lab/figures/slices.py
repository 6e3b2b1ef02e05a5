"""The loss of every setting against each number that was varied: for searches that have no grid, and so no map."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from dst_lab.cards import metric
from dst_lab.figures.heat_map import fence
from dst_lab.figures.importance import varied
from dst_lab.figures.style import Drawn, letter, panels, plain_logarithm
from dst_lab.plans.plan import is_number
from dst_lab.records import Setting
from dst_lab.records.groups import score

MOST, FEWEST = 3, 3
"""Panels at most, and different values of a number at least."""
WIDE = 20
"""From this ratio of its largest value to its smallest, a number has a logarithmic axis."""


def slices(settings: Sequence[Setting], names: Sequence[str], where: str) -> Drawn:
    """One panel per number; a dot is a setting."""
    names, scores = names[:MOST], [score(setting) for setting in settings]
    end = fence(scores, -1)
    task = str(settings[0].config["task"])
    figure, axes = panels(len(names))
    for ax, name in zip(axes, names, strict=True):
        numbers = [value if is_number(value) else math.nan for value in varied(settings)[name]]
        _panel(ax, settings, numbers, scores)
        ax.set(xlabel=letter(name), ylabel=metric("validation_loss", task).summary)
        if end is not None:
            low = min(value for value in scores if value <= end)
            ax.set_ylim(low - 0.05 * (end - low), end)
        present = [number for number in numbers if math.isfinite(number)]
        if min(present) > 0 and max(present) / min(present) >= WIDE:
            ax.set_xscale("log")
            plain_logarithm(ax.xaxis, 100)
        else:
            ax.locator_params(axis="x", nbins=5)  # labels such as 0.00025 are wide
        if len({setting.look.label for setting in settings}) > 1:
            ax.legend(loc="best")
    outside = sum(not math.isfinite(value) or (end is not None and value > end) for value in scores)
    caption = (
        f"A dot is one of {len(settings)} settings: its mean lowest validation loss over {settings[0].seeds_text}, "
        "against each number that was varied, what else differs left aside."
    )
    if outside:
        caption += f" Above the frame, or with a run that diverged: {outside}."
    if any(not is_number(value) for name in names for value in varied(settings)[name]):
        caption += " A setting without a number has no dot against it."
    return Drawn(f"Loss against each number, {where}", figure, caption, len(names))


def numbers_varied(settings: Sequence[Setting]) -> list[str]:
    """The numbers of which several values were trained, and not all of them diverged."""
    scores = [score(setting) for setting in settings]
    names = []
    for name, values in varied(settings).items():
        numbers = [(value, one) for value, one in zip(values, scores, strict=True) if is_number(value)]
        if len({value for value, _ in numbers}) >= FEWEST and any(math.isfinite(one) for _, one in numbers):
            names.append(name)
    return names


def _panel(ax: Axes, settings: Sequence[Setting], numbers: Sequence[float], scores: Sequence[float]) -> None:
    looks = {setting.look.label: setting.look for setting in settings}
    for label, look in looks.items():
        chosen = [i for i, setting in enumerate(settings) if setting.look.label == label and math.isfinite(scores[i])]
        if any(math.isfinite(numbers[i]) for i in chosen):
            x, y = np.array([numbers[i] for i in chosen]), np.array([scores[i] for i in chosen])
            ax.plot(x, y, look.marker, color=look.color, ls="none", alpha=0.75, mew=0, label=label)
