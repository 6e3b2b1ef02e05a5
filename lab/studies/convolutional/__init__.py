"""Convolutional logic networks of published sizes, as accurate as the published ones, trained in minutes."""

from dst_lab.cards import MetricCard, register_metric
from dst_lab.report import Study

from studies.convolutional.claims import TASK, judge
from studies.convolutional.figures import gates, time

register_metric(MetricCard(name="gates_simplified", label="gates after simplification", direction=-1))
CONVOLUTIONAL = Study(
    name="convolutional",
    title="Convolutional logic networks of published sizes",
    lead="LogicTreeNet (Petersen et al., 2024), whose code is not public: S and M on CIFAR-10, S, M and L on MNIST, "
    "with soft gates that become their argmax before the end, structured wiring, and no teacher; and the same on "
    "Fashion-MNIST, where only dense logic networks have published numbers.",
    tasks=(TASK,),
    roles=("soft",),
    rules=(judge,),
    questions={
        "L1": "Are the published accuracies reached?",
        "L2": "Do the networks train in minutes?",
    },
    figures={"convolutional-gates": gates, "convolutional-time": time},
    results=False,
    first=("convolutional-gates", "convolutional-time"),
)
