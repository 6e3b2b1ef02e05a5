"""Where the optimum lies on the binary network, whose two temperatures were searched over a whole grid."""

from dst_lab.cards import task_card
from dst_lab.figures import maps
from dst_lab.figures.style import Drawn
from dst_lab.records import Rows

from studies.paper.claims.tasks import OPTIMA, OURS, SBN


def network(rows: Rows) -> Drawn:
    """Binary network: loss, accuracy and inactive neurons over the grid."""
    return maps.temperature_map(rows, SBN.task, OURS, task_card(SBN.task).parts, {"the paper's": OPTIMA[SBN.task]})
