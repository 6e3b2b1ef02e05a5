"""The rule with its constants varied, one row per variant: what the rule was fixed on, and what it depends on."""

from pathlib import Path
from typing import Any

import numpy as np

from dst_lab.configs import CategoricalAutoencoderConfig, Config, StochasticBinaryConfig
from dst_lab.configs.cards import metric, title
from dst_lab.figures.style import plus_minus
from dst_lab.plans.plan import with_value
from dst_lab.records import Rows
from dst_lab.report.section import Page, Section
from dst_lab.studies.temperatures.claims import CONVERGED
from dst_lab.studies.temperatures.settings import QUICK_LR
from dst_lab.studies.temperatures.variants import EXPLORED_LR, explored, explored_seeds

TEMPLATE = Path(__file__).with_name("ablation.html")
LOSS = "validation_loss"


def table(rows: Rows, task: type[Config]) -> dict[str, Any] | None:
    """A task's variants with their loss at each learning rate; None where no run is there."""
    lrs = EXPLORED_LR[task] if rows.scale == "paper" else QUICK_LR
    lines = [
        {"name": name, "cells": [_cell(rows, with_value(config, "lr", lr), task) for lr in lrs]}
        for name, config in explored(task, rows.scale).items()
    ]
    if not any(cell for line in lines for cell in line["cells"]):
        return None
    return {"task": title(task.task), "unit": metric(LOSS, task.task).axis, "lrs": lrs, "lines": lines}


def _cell(rows: Rows, config: Config, task: type[Config]) -> str:
    runs = rows.of_status(with_value(config, "seed", seed) for seed in explored_seeds(task, rows.scale))
    if not runs:
        return ""
    died = sum(row.last(LOSS) >= CONVERGED for row in runs) if task is CategoricalAutoencoderConfig else 0
    text = f"{plus_minus(np.array([row.best(LOSS) for row in runs]))} (n = {len(runs)})"
    return f"{text}, {died} not converged" if died else text


def _render(page: Page) -> str:
    tables = [
        rendered
        for task in (CategoricalAutoencoderConfig, StochasticBinaryConfig)
        if (rendered := table(page.rows, task))
    ]
    return page.fill(str(TEMPLATE), tables=tables) if tables else ""


ABLATION = Section("ablation", "Constants varied", _render)
