"""Every seed of the four estimators at their chosen settings, on test data."""

from dst_lab.figures import seeds
from dst_lab.figures.style import Drawn
from dst_lab.records import Rows

from studies.paper.claims.tasks import CATAE, LOGIC, ROLES, SBN

HEADLINE = {
    SBN.task: ("test_accuracy", "validation_loss"),
    CATAE.task: ("test_loss", "validation_loss"),
    LOGIC.task: ("test_accuracy_argmax", "validation_accuracy_argmax"),
}
"""Two metrics per task: the one on test data at the end of training, and the one its claims are judged by."""


def chosen(rows: Rows) -> Drawn:
    """One panel per task."""
    return seeds.seeds(rows, {task: tested for task, (tested, _) in HEADLINE.items()}, ROLES)
