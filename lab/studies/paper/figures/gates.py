"""Which of the sixteen gates the neurons of a logic network end with."""

from typing import Any

import numpy as np
from dst_lab.figures.curves import counted, lost, recipes_of, settled, unsettled
from dst_lab.figures.style import FAINT, INK, Drawn, absent, listing, panels
from dst_lab.records import Rows, spread

from studies.paper.claims.tasks import LOGIC, REFERENCE, ROLES

TASK = LOGIC.task
GATES = (
    *("false", "a and b", "a, not b", "a", "b, not a", "b", "xor", "or"),
    *("nor", "xnor", "not b", "a or not b", "not a", "b or not a", "nand", "true"),
)


def histograms(rows: Rows) -> Drawn:
    """Logic gates: share of neurons by gate, one panel per estimator."""
    roles = (*ROLES, REFERENCE)
    settings = settled(rows, TASK, roles, ("gate_histogram",))
    missing, recipes = unsettled(rows, TASK, roles, settings), recipes_of(rows, TASK, roles)
    if not settings:
        figure, (ax,) = panels(1)
        absent(ax, missing)
        return Drawn("Gates in use, logic gates", figure, "", 1, missing, recipes)
    figure, axes = panels(len(settings), width=2.45, height=3.3)
    ends = {}
    top = 0.0
    for ax, (role, setting) in zip(axes, settings.items(), strict=True):
        look = setting.look
        counts = np.stack([row.values("gate_histogram")[-1] for row in setting.rows])
        share = 100 * counts / counts.sum(-1, keepdims=True)
        ends[role] = float(setting.values("gate_perplexity", "last").mean())
        style: dict[str, Any] = {"color": look.color, "hatch": look.hatch, "edgecolor": INK, "ecolor": FAINT, "lw": 0.5}
        ax.barh(GATES, share.mean(0), 0.72, xerr=spread(share), **style)
        ax.axvline(100 / 16, color=FAINT, lw=1, ls=(0, (4, 2)))
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", labelsize=7, length=0)
        ax.set_title(f"{look.label}\nperplexity {ends[role]:.1f} of 16", fontsize=9, fontweight="normal")
        ax.set_xlabel("neurons (%)")
        top = max(top, float((share.mean(0) + spread(share)).max()))
    for ax in axes:
        ax.set_xlim(0, 1.05 * max(top, 7.0))
    order = sorted(ends, key=lambda role: -ends[role])
    named = listing([f"{settings[role].look.label} {ends[role]:.1f}" for role in order])
    caption = (
        f"Share of neurons by the gate they end with; a perplexity of 16 would be equal use (dashed). Most balanced "
        f"first: {named}. {counted(settings)}; thin lines: one standard deviation.{lost(rows, TASK, roles)}"
    )
    return Drawn("Gates in use, logic gates", figure, caption, len(settings), missing, recipes)
