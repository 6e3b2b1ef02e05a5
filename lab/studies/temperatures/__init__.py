"""Temperatures that set themselves: does one rule, without a number to tune, do as well as tuned constants?"""

from dst_lab.report import Study
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.categorical_vae import CategoricalVAEConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

from studies.temperatures.claims import judge
from studies.temperatures.figures import courses, rates
from studies.temperatures.recipes import RECIPES

TEMPERATURES = Study(
    name="temperatures",
    title="Temperatures that set themselves",
    lead="One rule, with one set of constants for all tasks, sets both temperatures of Decoupled ST while a network "
    "trains. It is judged against constants that were tuned by the searches of the paper's study, on fresh seeds.",
    recipes=RECIPES,
    tasks=(
        StochasticBinaryConfig.task,
        CategoricalAutoencoderConfig.task,
        LogicGatesConfig.task,
        CategoricalVAEConfig.task,
    ),
    roles=("decoupled",),
    rules=(judge,),
    questions={
        "T1": "Does the rule do without a learning rate that suits it?",
        "T2": "Is the rule better than the best constants?",
        "T3": "Is the rule as good where constants are easy to tune?",
        "T4": "And on VAEs, whose draw belongs to the model?",
    },
    figures={"rates": rates, "courses": courses},
    results=False,
    first=("rates",),
    parts={"What the rule does": ["courses"]},
)
