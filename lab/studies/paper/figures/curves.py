"""The chosen settings: training curves, one figure per task, and every seed on test data."""

from collections.abc import Mapping

import numpy as np
from dst_lab.cards import metric
from dst_lab.figures import curves, seeds
from dst_lab.figures.style import WIDTH, Drawn, absent, listing, panels, plus_minus, settings_text
from dst_lab.records import Rows, Setting, together

from studies.paper.claims.mechanisms import converged_below
from studies.paper.claims.tasks import CATAE, LOGIC, REFERENCE, ROLES, SBN

EVERY_SEED = ("validation_loss", "perplexity")
HEADLINE = {
    SBN.task: ("test_accuracy", "validation_loss"),
    CATAE.task: ("test_loss", "validation_loss"),
    LOGIC.task: ("test_accuracy_argmax", "validation_accuracy_argmax"),
}
"""Two metrics per task: the one on test data at the end of training, and the one its claims are judged by."""


def chosen(rows: Rows) -> Drawn:
    """Every seed on test data, one panel per task."""
    return seeds.seeds(rows, {task: tested for task, (tested, _) in HEADLINE.items()}, ROLES)


def network(rows: Rows) -> Drawn:
    """Binary network: loss and accuracy on validation data."""
    return curves.curves(rows, SBN.task, ROLES, ("validation_loss", "validation_accuracy"))


def logic(rows: Rows) -> Drawn:
    """Logic gates: training loss and validation accuracy, with the soft original besides the four."""
    return curves.curves(rows, LOGIC.task, (*ROLES, REFERENCE), ("train_loss", "validation_accuracy"))


def autoencoder(rows: Rows) -> Drawn:
    """Autoencoder: loss and use of the codes, one panel per estimator, every seed a line of its own."""
    task = CATAE.task
    settings = curves.settled(rows, task, ROLES, EVERY_SEED)
    missing = curves.unsettled(rows, task, ROLES, settings)
    figure, axes = panels(len(settings) or 1, width=2.7 if settings else WIDTH, height=4.3, heights=(1, 1))
    if not settings:
        for ax in axes:
            absent(ax, missing)
    for i, setting in enumerate(settings.values()):
        top = axes[2 * i]
        taus = settings_text(setting.config["estimator"])
        below = ", ".join(filter(None, (taus, f"rate {setting.config['lr']:g}")))
        top.set_title(f"{setting.look.label}\n{below}", fontsize=9, fontweight="normal")
        for ax, card in zip(axes[2 * i : 2 * i + 2], (metric(name, task) for name in EVERY_SEED), strict=True):
            x, values = together(setting.rows, card.name)
            ax.plot(x, card.factor * values.T, color=setting.look.color, lw=1.0, alpha=0.75)
            ax.set_ylabel(card.axis)
            curves.frame(ax, [card.factor * together(s.rows, card.name)[1] for s in settings.values()])
        axes[2 * i + 1].set_xlabel("epoch")
    caption = curves.caption(settings, metric(EVERY_SEED[0], task), "Each line is one seed")
    caption += _converged(settings, converged_below(rows)) + curves.lost(rows, task, ROLES)
    recipes = curves.recipes_of(rows, task, ROLES)
    return Drawn(curves.heading(task), figure, caption, len(settings) or 1, missing, recipes)


def _converged(settings: Mapping[str, Setting], below: float) -> str:
    """For a caption: how many runs of each converged, and to what; a mean over all is of neither kind."""
    parts = []
    for setting in settings.values():
        ends = np.array([loss for row in setting.rows if (loss := row.last("validation_loss")) < below])
        value = f" ({plus_minus(ends)})" if len(ends) else ""
        parts.append(f"{setting.look.label} {len(ends)} of {setting.n + setting.diverged}{value}")
    how = f"with a last validation loss below {below:.4g} nats"
    return f" Converged, {how}: {listing(parts)}." if parts else ""
