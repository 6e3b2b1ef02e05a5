"""The study's tables: every arm on every shape, the published numbers, and polynomial programming."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dst_lab.cards import estimator
from dst_lab.figures.style import plus_minus, value_text
from dst_lab.plans.plan import seeded, settings, value_of
from dst_lab.records import Row, Rows, Setting

from studies.estimators.claims import Place
from studies.estimators.recipes import POWERS, PUBLISHED, SHAPES, TUNED, anchor_plans

MEASURED = ("validation_loss", "test_loss", "test_bound")
"""What the table of arms has for each, in nats per image: by validation images the lowest over training, which is what
the rules judge by; by test images the last."""
POLYNOMIAL = {"softmax_ste": (0.2272, 0.1480, 0.0688), "reinmax": (0.0152, 0.0043, 0.0007)}
"""Published for four classes, by power: the mean loss over the last 200 of 10,000 steps, one seed."""


@dataclass(frozen=True)
class Cell:
    """An arm on a shape."""

    setting: str
    """What the search chose."""
    values: dict[str, str]
    """Mean and standard deviation over seeds, by metric."""
    n: int
    diverged: int
    seeds: str
    first: bool = False
    """The lowest mean validation loss of the place, where every arm has its fresh seeds."""


def label(arm: str) -> str:
    """An arm in words."""
    return estimator(TUNED[arm].estimator).label + (", decoupled" if arm == "reinmax-decoupled" else "")


def arms(rows: Rows, places: Sequence[Place]) -> dict[str, dict[str, Cell]]:
    """Arm -> place -> what was chosen and what it came to on fresh seeds; without the arms that have no runs."""
    settings: dict[str, dict[str, Setting]] = {}
    for arm in TUNED:
        for place in places:
            setting = rows.setting(place.task, place.role(arm))
            if setting is not None and setting.n:
                settings.setdefault(arm, {})[place.name] = setting
    lowest = {place.name: _lowest([of[place.name] for of in settings.values() if place.name in of]) for place in places}
    return {
        arm: {name: _cell(arm, one, _mean(one.rows) == lowest[name]) for name, one in of.items()}
        for arm, of in settings.items()
    }


def _lowest(settings: list[Setting]) -> float | None:
    """The lowest mean of a place; None until every arm has its fresh seeds there."""
    whole = len(settings) == len(TUNED) and all(one.seeds == "confirmation" for one in settings)
    return min(_mean(one.rows) for one in settings) if whole else None


def _mean(rows: list[Row]) -> float:
    return float(np.mean([row.best("validation_loss") for row in rows]))


def _value(row: Row, name: str) -> float:
    return row.best(name) if name == "validation_loss" else row.last(name)


def _cell(arm: str, setting: Setting, first: bool) -> Cell:
    names = [name for name in MEASURED if all(row.has(name) for row in setting.rows)]
    values = {name: plus_minus(np.array([_value(row, name) for row in setting.rows])) for name in names}
    varied = [name for name, _ in TUNED[arm].axes]
    words = [f"{name} {value_text(setting.config['estimator'][name])}" for name in varied]
    words.append(f"rate {setting.config['lr']:.2g}")
    return Cell(", ".join(words), values, setting.n, setting.diverged, setting.seeds, first)


def anchors(rows: Rows) -> dict[str, dict[str, tuple[str, float, int]]]:
    """Published name -> shape -> (ours, published, n); a setting of which no run is there is left out."""
    by_anchor: dict[str, dict[str, tuple[str, float, int]]] = {}
    for shape in SHAPES:
        for name, plan in anchor_plans(shape).items():
            rows_or_none = [rows.find(run) for run in seeded(settings(plan.base, plan.axes), plan.seeds)]
            values = [row.last("train_set_loss") for row in rows_or_none if row is not None and row.done]
            if values:
                ours = plus_minus(np.array(values))
                by_anchor.setdefault(name, {})[shape] = (ours, PUBLISHED[name].at(shape)[1], len(values))
    return by_anchor


def polynomial(rows: Rows) -> list[dict[str, Any]]:
    """The last loss of each estimator, classes 2 and 4, by power, with its published value where there is one."""
    table: list[dict[str, Any]] = []
    by_setting: dict[tuple[str, int, float], list[float]] = {}
    for config in rows.wanted("polynomial-programs"):
        row = rows.find(config)
        if row is not None and row.done:
            key = config.estimator.name, value_of(config, "classes"), value_of(config, "power")
            by_setting.setdefault(key, []).append(row.last("train_loss"))
    for name in dict.fromkeys(tuned.estimator for tuned in TUNED.values()):
        for classes in (2, 4):
            values = [by_setting.get((name, classes, power), []) for power in POWERS]
            if all(values):
                spreads = [f" ± {np.std(one, ddof=1):.4f}" if len(one) > 1 else "" for one in values]
                losses = [f"{np.mean(one):.4f}{spread}" for one, spread in zip(values, spreads, strict=True)]
                published = POLYNOMIAL.get(name) if classes == 4 else None
                table.append(
                    {
                        "estimator": estimator(name).label,
                        "classes": classes,
                        "losses": losses,
                        "n": len(values[0]),
                        "published": [f"{value:.4f}" for value in published] if published else [""] * len(POWERS),
                    }
                )
    return sorted(table, key=lambda row: int(row["classes"]))
