"""Logic networks of every published size, as accurate as the published ones, and as circuits."""

from dst_lab.report import Study
from dst_lab.tasks.logic_gates import LogicGatesConfig

from studies.circuits.claims import judge
from studies.circuits.recipes import RECIPES

CIRCUITS = Study(
    name="circuits",
    title="Logic networks of every published size",
    lead="The five CIFAR-10 networks of Petersen et al. (2022), from 48,000 to 5 million gates, trained by Decoupled "
    "ST in packed bits on one GPU, and compared with the published accuracy of the discretised networks.",
    notes={
        "paper": "The networks were trained next to other programs on one GPU: minutes are more than a network takes "
        "alone. They also saw the mirror images of the training images, which the published ones did not.",
    },
    recipes=RECIPES,
    tasks=(LogicGatesConfig.task,),
    roles=("decoupled",),
    rules=(judge,),
    questions={
        "S1": "Are the published accuracies reached?",
        "S2": "Does the largest network train in minutes?",
    },
    results=False,
)
