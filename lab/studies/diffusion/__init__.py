"""Masked diffusion: gradients through its steps, and what separate temperatures are worth there."""

from dst_lab.cards import MetricCard, TaskCard, register_metric, register_task
from dst_lab.report import Study

from studies.diffusion.claims import DIRECTIONS, GRADIENTS, GUIDANCE, REWARDS, SUDOKU, judge
from studies.diffusion.figures import FIGURES

for _name, _title in (
    (GRADIENTS, "gradients of masked diffusion"),
    (SUDOKU, "Sudoku without a prior"),
    (REWARDS, "masked models fine-tuned by rewards"),
    (DIRECTIONS, "gradients of rewards before fine-tuning"),
    (GUIDANCE, "guidance of masked models"),
):
    register_task(TaskCard(name=_name, title=_title))
register_metric(MetricCard(name="solved_argmax", label="solved by argmax", unit="share", direction=1))
register_metric(MetricCard(name="objective_b", label="J by the unseen classifier", unit="nats", direction=1))
DIFFUSION = Study(
    name="diffusion",
    title="Gradients through masked diffusion",
    lead="Masked diffusion with a gradient: why the loop that is copied explodes, and what separate temperatures are "
    "worth in Sudoku, in fine-tuning by a reward, and in guidance.",
    tasks=(GRADIENTS, SUDOKU, REWARDS, GUIDANCE),
    roles=("decoupled",),
    rules=(judge,),
    questions={
        "E1": "Does the copied loop explode by its mask channel?",
        "E2": "Does a rollout's gradient keep its size?",
        "E3": "Does it point as well as the mended loop?",
        "A1": "Do separate temperatures solve most Sudokus?",
        "A2": "Is their gain more than an entropy bonus?",
        "F1": "Do they help fine-tuning by a reward?",
        "F2": "Does a gradient through the tokens beat policy gradients?",
        "F3": "Are one-hot states as good as soft ones?",
        "F4": "Are detached inputs as good?",
        "G1": "Do separate temperatures help guidance with a prior?",
        "G2": "Do they help to find images from XOR?",
        "G3": "Do they help to find images from AND?",
        "G4": "Are published numbers reached?",
    },
    figures=FIGURES,
    results=False,
    first=("diffusion-steps",),
    parts={
        "Sudoku": ["diffusion-sudoku"],
        "Fine-tuning": ["diffusion-rewards", "diffusion-tuned", "diffusion-directions"],
        "Posterior sampling": ["diffusion-pairs", "diffusion-samples"],
    },
)
