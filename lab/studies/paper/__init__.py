"""The paper on decoupled straight-through estimators: its three tasks, and its claims."""

from dst_lab.records import Rows, Setting
from dst_lab.report import Study
from markupsafe import Markup

from studies.paper.claims import judge
from studies.paper.claims.mechanisms import converged_below
from studies.paper.claims.tasks import CATAE, OPTIMA, ROLES, SBN
from studies.paper.figures import FIGURES
from studies.paper.figures.curves import HEADLINE
from studies.paper.recipes import RECIPES

LEAD = Markup(
    "Networks that make discrete choices are trained with a stand-in gradient. Usually one temperature sets both how "
    "random a choice is and how its gradient spreads. <em>Decoupled ST</em> gives each job a temperature of its own: "
    "<i>τ<sub>f</sub></i> draws the choice, <i>τ<sub>b</sub></i> carries the gradient. A paper claims that this helps "
    "on three tasks (R. Shah, M. Yan, M. C. Mozer and D. Liu, “Improving Discrete Optimisation Via Decoupled "
    "Straight-Through Estimator”). This page checks those claims, run by run."
)
QUICK = Markup(
    "<strong>Quick scale.</strong> Small networks on scikit-learn's digits, made in minutes: a demonstration of the "
    "method, not evidence about the paper's own experiments."
)
PARTS = {
    "Binary network": ("map", "network-curves", "inactive"),
    "Autoencoder": ("autoencoder-curves", "reconstructions", "autoencoder-search"),
    "Logic gates": ("logic-curves", "gates", "logic-search"),
    "What each temperature does": ("tau-f-effects", "tau-b-effects", "bias-variance"),
}


TERMS = {
    "converged": "Of the autoencoder: the last validation loss lies in the better half between the collapsed solution "
    "and the best loss of the searches.",
    "collapsed": "Of the autoencoder: (almost) all images share one code, so that it draws the same picture for each.",
    "inactive neurons": "Neurons that hardly learn: their gradient is below 1% of the mean over the neurons of a run.",
}


def _converged(rows: Rows, setting: Setting) -> str:
    """How many of the runs converge: a mean over both outcomes says little alone."""
    count = sum(row.last("validation_loss") < converged_below(rows) for row in setting.rows)
    return f"{count} of {setting.n + setting.diverged} converged"


PAPER = Study(
    name="paper",
    title="Two temperatures instead of one",
    lead=LEAD,
    notes={"quick": QUICK},
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
    headline=HEADLINE,
    remarks={CATAE.task: _converged},
    terms=TERMS,
    figures=FIGURES,
    first=("seeds",),
    parts=PARTS,
)
