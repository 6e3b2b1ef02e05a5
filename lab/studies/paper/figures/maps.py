"""Where the optimum lies on the binary network, whose two temperatures were searched over a whole grid."""

from dst_lab.cards import task_card
from dst_lab.figures import maps
from dst_lab.figures.style import Drawn
from dst_lab.figures.sweeps import searched
from dst_lab.records import Rows

from studies.paper.claims.tasks import OPTIMA, OURS, SBN


def network(rows: Rows) -> Drawn:
    """Binary network: loss, accuracy and inactive neurons over the grid."""
    sweep, reported = searched(rows, SBN.task, OURS), {"the paper's": OPTIMA[SBN.task]}
    return maps.temperature_map(sweep, SBN.task, task_card(SBN.task).parts, reported)
