"""Straight-through estimators side by side, each tuned with the same number of settings."""

from dst_lab.report import Study
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig

from studies.estimators.claims import judge
from studies.estimators.figures import FIGURES
from studies.estimators.recipes import PAPER_TASKS, RECIPES
from studies.estimators.tables import TABLES

ESTIMATORS = Study(
    name="estimators",
    title="Straight-through estimators side by side",
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
    figures=FIGURES,
    results=False,
    parts={"Categorical VAE": tuple(FIGURES)[:2], "Exact gradients": tuple(FIGURES)[2:]},
    tables=TABLES,
)
