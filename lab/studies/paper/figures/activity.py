"""Neurons that get no gradient, at the threshold quoted and at every other."""

from typing import Any

import numpy as np
from dst_lab.figures.curves import lost, recipes_of, settled, unsettled
from dst_lab.figures.style import FAINT, INK, Drawn, absent, listing, panels, safe
from dst_lab.records import Rows, Setting, spread
from dst_lab.tasks.stochastic_binary import THRESHOLDS

from studies.paper.claims.tasks import OURS, ROLES, SBN

TASK = SBN.task
PAPER = {OURS: 11.0, "softmax_ste": 47.0, "gumbel_ste": 60.0}
"""Per cent at the end of training, as the paper has it; its threshold is not stated."""


def network(rows: Rows) -> Drawn:
    """Binary network: inactive neurons by threshold, and at 1% of each run's mean gradient."""
    settings = settled(rows, TASK, ROLES, ("inactive_below", "inactive"))
    missing = unsettled(rows, TASK, ROLES, settings)
    figure, (left, right) = panels(2)
    parts = []
    if not settings:
        absent(left, missing)
        absent(right, missing)
    for place, (role, setting) in enumerate(settings.items()):
        look = setting.look
        below = 100 * np.stack([row.values("inactive_below")[-1] for row in setting.rows])
        mean, width = below.mean(0), spread(below)
        left.fill_between(THRESHOLDS, mean - width, mean + width, color=look.color, alpha=0.18, lw=0)
        left.plot(THRESHOLDS, mean, color=look.color, ls=look.line, marker=look.marker, markevery=2, label=look.label)
        quoted = 100 * setting.values("inactive", "last")
        style: dict[str, Any] = {
            "color": look.color,
            "hatch": look.hatch,
            "edgecolor": INK,
            "ecolor": INK,
            "lw": 0.6,
            "capsize": 3,
        }
        right.bar(place, quoted.mean(), 0.62, yerr=float(spread(quoted)), **style)
        offset: dict[str, Any] = {"xytext": (-3, 3), "textcoords": "offset points", "ha": "right"}
        right.annotate(f"{quoted.mean():.0f}%", (place - 0.06, quoted.mean()), **offset)
        if role in PAPER:
            label = "the paper's figure" if role == OURS else ""
            ends = [place - 0.4, place + 0.4]
            right.plot(ends, 2 * [PAPER[role]], color=FAINT, lw=2, ls=(0, (2, 1)), label=label)
        parts.append(f"{look.label} {quoted.mean():.0f}%")
    if settings:
        left.set(xscale="log", xlabel="threshold on mean |dL/dl|", ylabel="inactive neurons (%)", ylim=(0, 100))
        left.legend()
        right.set_xticks(range(len(settings)), [safe(s.look.label.replace(" ", "\n")) for s in settings.values()])
        right.set(ylabel="inactive neurons (%)", ylim=(0, 100))
        right.set_title("below 1% of the run's mean", fontsize=9, fontweight="normal")
        left.set_title("by absolute threshold", fontsize=9, fontweight="normal")
        right.grid(axis="x", visible=False)
        right.legend()
    caption = _caption(settings, parts) + lost(rows, TASK, ROLES)
    return Drawn("Inactive neurons, binary network", figure, caption, 2, missing, recipes_of(rows, TASK, ROLES))


def _caption(settings: dict[str, Setting], parts: list[str]) -> str:
    if not settings:
        return ""
    n = listing(sorted({f"{setting.n} {setting.seeds}" for setting in settings.values()}))
    return (
        f"Share of hidden neurons whose mean gradient over the validation images is negligible, at the end of "
        f"training: {listing(parts)} below 1% of the run's mean. Left, the same against absolute thresholds: an order "
        f"that changes with the threshold is no finding. n = {n} seeds; bands and bars: one standard deviation."
    )
