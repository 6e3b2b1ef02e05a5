"""The comparison as a study: what its page says, and in which order."""

from dst_lab.report import Study
from dst_lab.tasks.quantisers import CodebookVAEConfig

from studies.codebooks.claims import judge
from studies.codebooks.figures import FIGURES
from studies.codebooks.recipes import RECIPES, STEPS

CODEBOOKS = Study(
    name="codebooks",
    title="Codebooks of three sizes",
    topic="Codebooks",
    lead="CIFAR-10 through 8 x 8 tokens of Sonnet's VQ-VAE, each token one of K codes: ten methods, each tuned in one "
    f"number over three values, {STEPS:,} steps of 256 images; then judged on seeds that no search has seen.",
    recipes=RECIPES,
    tasks=(CodebookVAEConfig.task,),
    roles=("decoupled", "identity_ste", "gumbel_ste"),
    rules=(judge,),
    questions={
        "B0": "Are the published numbers met?",
        "B1": "Do a metric and a backward temperature of its own help IBQ?",
        "B2": "Do they help more than its entropy penalty?",
        "B3": "Does drawing help?",
        "B4": "Are self-set temperatures as good as tuned ones?",
        "B5": "Does Decoupled ST beat the others?",
        "B6": "Do codes stay in use?",
        "B7": "Do more codes help?",
    },
    claimant="What is asked",
    figures=FIGURES,
    results=False,
    first=("quality",),
    parts={"Reconstructions": ["reconstructions"], "Cost": ["cost"]},
)  # fmt: skip
