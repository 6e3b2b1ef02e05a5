"""The comparison as a study: what its page says, and in which order."""

from pathlib import Path

from dst_lab.report import Page, Section, Study
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig

from studies.estimators import tables
from studies.estimators.claims import judge, places
from studies.estimators.figures import FIGURES
from studies.estimators.recipes import PAPER_TASKS, POWERS, RECIPES, SHAPES

TEMPLATE = Path(__file__).parent / "tables.html"


def _tables(page: Page) -> str:
    shapes, tasks = places()
    compared = {
        heading: ({tables.label(arm): cells for arm, cells in tables.arms(page.rows, where).items()}, where)
        for heading, where in (("Every estimator on every shape", shapes), ("The paper's tasks", tasks))
    }
    return page.fill(
        str(TEMPLATE),
        compared=compared,
        anchors=tables.anchors(page.rows),
        polynomial=tables.polynomial(page.rows),
        shapes=list(SHAPES),
        powers=POWERS,
    )


ESTIMATORS = Study(
    name="estimators",
    title="Straight-through estimators side by side",
    topic="Straight-through estimators",
    lead="Every estimator tuned over its own temperatures and the same learning rates, with equally many settings, on "
    "categorical VAEs of three shapes; then judged on seeds that no search has seen. Before that, the published "
    "settings, at their full length: are the published numbers met?",
    recipes=RECIPES,
    tasks=(CategoricalVAEConfig.task, *(on.config.task for on in PAPER_TASKS.values())),
    roles=("decoupled", "reinmax", "softmax_ste", "gumbel_ste", "gumbel_rao", "gapped_ste"),
    rules=(judge,),
    questions={
        "E0": "Are the published numbers met?",
        "E1": "Does a backward temperature of its own help straight-through?",
        "E2": "Does a forward temperature of its own help ReinMax?",
        "E3": "Does Decoupled ST beat the others?",
        "E4": "Does decoupled ReinMax beat the others?",
        "E5": "Does Decoupled ST beat the others on the paper's tasks?",
    },
    claimant="What is asked",
    figures=FIGURES,
    results=False,
    parts={"Categorical VAE": tuple(FIGURES)[:2], "Exact gradients": tuple(FIGURES)[2:]},
    sections=(Section("tables", "Tables", _tables),),
)
