"""The paper as a study: what its page says, and in which order."""

from pathlib import Path

from markupsafe import Markup

from dst_lab.report import Readings, Study
from dst_lab.report.sections import OTHERS, READINGS, REST, SETTINGS, VERDICTS, figures, temperature_map
from dst_lab.studies.paper.claims import judge
from dst_lab.studies.paper.claims.tasks import CATAE, OPTIMA, ROLES, SBN
from dst_lab.studies.paper.figures import FIGURES
from dst_lab.studies.paper.readings import ask, begun, lacking
from dst_lab.studies.paper.recipes import RECIPES

HERE = Path(__file__).parent
PARTS = {
    "Binary network": ("network-curves", "inactive"),
    "Autoencoder": ("autoencoder-curves", "reconstructions", "autoencoder-search"),
    "Logic gates": ("logic-curves", "gates", "logic-search"),
    "What each temperature does": ("tau-f-effects", "tau-b-effects", "bias-variance"),
}


def _text(name: str) -> Markup:
    return Markup((HERE / f"{name}.html").read_text(encoding="utf-8").strip())


PAPER = Study(
    name="paper",
    title="Two temperatures instead of one",
    topic="Decoupled straight-through",
    lead=_text("lead"),
    notes={"quick": _text("quick")},
    footer=_text("footer"),
    recipes=RECIPES,
    tasks=tuple(OPTIMA),
    shared=(SBN.task, CATAE.task),  # logic gates have no sweep of one temperature
    roles=ROLES,
    rules=(judge,),
    questions={
        "C1": "Do the two temperatures want different values?",
        "C2": "Is Decoupled ST better than the usual estimators?",
        "C3": "Does each temperature do a job of its own?",
    },
    claimant="What the paper claims",
    reported=OPTIMA,
    reporter="the paper\N{RIGHT SINGLE QUOTATION MARK}s",
    readings=Readings(ask=ask, begun=begun, lacking=lacking),
    figures=FIGURES,
    sections=(VERDICTS, READINGS, temperature_map("map"), figures(PARTS), SETTINGS, OTHERS, *REST),
)
