"""A study from outside, over the task of lab/examples/own_task.py: a recipe, a rule, figures and a table."""

from typing import Any

from dst_lab.cards import MetricCard, TaskCard, register_metric, register_task, task_card
from dst_lab.claims import Verdict, decide, paired
from dst_lab.claims.verdict import Comparison
from dst_lab.estimators import Choice
from dst_lab.figures.maps import temperature_map
from dst_lab.figures.style import Drawn, panels
from dst_lab.figures.sweeps import searched
from dst_lab.plans import Grid, Plan, Recipes
from dst_lab.records import Rows
from dst_lab.report import Study, Table
from dst_lab.runs import CONFIGS

TASK, SEEDS = "routing", (0, 1)


def toy_grid(scale: str) -> Plan:
    """Routing: a small grid over both temperatures."""
    base: Any = CONFIGS[TASK](estimator=Choice.make("decoupled", tau_f=0.5, tau_b=0.5), steps=20)
    return Grid(base, (("tau_f", (0.5, 1.0)), ("tau_b", (0.5, 2.0))), SEEDS)


def judge(rows: Rows) -> list[Verdict]:
    """Every run at tau_f = 0.5 against the one of the same tau_b and seed at 1."""
    found = {(row.taus.tau_f, row.taus.tau_b, row.run.seed): row for row in rows.recipe("toy-grid", TASK)}
    verdict = {
        "claim": "T1",
        "task": TASK,
        "title": "A sharper draw is better",
        "rule": "Of every pair, which is better.",
    }
    if len(found) < 8:
        return [Verdict(**verdict, verdict="not tested", missing=(rows.command("toy-grid"),))]
    sides = [
        [row.best("validation_loss") for (tau_f, _, _), row in sorted(found.items()) if tau_f == of]
        for of in (0.5, 1.0)
    ]
    found_by_test = vars(paired(sides[0], sides[1], -1))
    words = {"name": "against a softer one", "metric": "lowest validation loss", "unit": ""}
    comparison = Comparison(**words, direction=-1, judged=True, **found_by_test)
    runs = tuple(row.run.id for row in found.values())
    return [Verdict(**verdict, verdict=decide([comparison]), comparisons=(comparison,), runs=runs)]


def bars(rows: Rows) -> Drawn:
    """The lowest loss of every run."""
    figure, (ax,) = panels(1)
    losses = [row.best("validation_loss") for row in rows.recipe("toy-grid", TASK)]
    ax.bar(range(len(losses)), losses)
    return Drawn("Bars of a toy", figure, f"Each bar is one of {len(losses)} runs.", 1, [], ("toy-grid",))


def mapped(rows: Rows) -> Drawn:
    """Its grid as a map."""
    return temperature_map(searched(rows, TASK, "decoupled"), TASK, task_card(TASK).parts)


def runs(rows: Rows) -> Table:
    """Its runs, one by one."""
    found = rows.recipe("toy-grid", TASK)
    body = [[f"tau_f = {row.taus.tau_f:g}", f"**{row.best('validation_loss'):.3f}**"] for row in found]
    return Table("Runs of a toy", ["setting", "loss"], body)


TOY = Study(
    name="toy",
    title="A toy",
    recipes=Recipes({"toy-grid": toy_grid}, searches=("toy-grid",)),
    tasks=(TASK,),
    roles=("decoupled",),
    rules=(judge,),
    questions={"T1": "Does a toy learn?"},
    figures={"toy-bars": bars, "toy-map": mapped},
    parts={"What a toy says": ["toy-bars", "toy-map"]},
    tables={"toy-runs": runs},
)
METRIC = MetricCard(name="validation_wobble", label="wobble of the output", unit="share", direction=1)


def register_cards() -> None:
    """What pages and figures call the task and its metrics."""
    register_metric(METRIC)
    register_task(TaskCard(name=TASK, title="toy routing", parts=("validation_loss", "validation_wobble")))
