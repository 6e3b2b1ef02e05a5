"""The plans of a study by their names: which of them search, what they found, and which the study can do without."""

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TypeAlias

from dst_lab.plans.adaptive import Adaptive
from dst_lab.plans.plan import Grid, Lookup, Plan, Sequential, Several
from dst_lab.runs import Config

Recipe: TypeAlias = Callable[[str], Plan]
"""From a scale ("quick" or "paper") to a plan; its docstring says what it trains."""
Search: TypeAlias = Grid | Sequential | Adaptive
Role: TypeAlias = tuple[str, str]
"""(task, role). A role is an estimator's name, or the name of the recipe that searches for it under another one."""


def at_paper_scale(plans: Mapping[str, Callable[[], Plan]]) -> dict[str, Recipe]:
    """The recipes of a study that has the paper's scale alone; any other scale is refused."""

    def recipe(plan: Callable[[], Plan]) -> Recipe:
        @wraps(plan)
        def at_scale(scale: str) -> Plan:
            if scale != "paper":
                raise ValueError(f"this study has no {scale} scale: add --scale paper")
            return plan()

        return at_scale

    return {name: recipe(plan) for name, plan in plans.items()}


@dataclass(frozen=True)
class Recipes:
    """The plans of a study, in the order in which they are followed."""

    plans: Mapping[str, Recipe] = field(default_factory=dict)
    searches: tuple[str, ...] = ()
    """The recipes that choose settings."""
    confirm: str = ""
    """The one that trains what they chose again, with fresh seeds."""
    optional: tuple[str, ...] = ()
    """The recipes that no claim and no figure needs."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Searches whose settings go by the search's own name, not by their estimator's: that name in words."""
    scales: tuple[str, ...] = ("paper", "quick")
    """The scales that its plans have."""
    folder: str = ""
    """The study's folder, such as lab/studies/paper; "" where the study is registered by the program that runs."""

    @property
    def needed(self) -> list[str]:
        """The recipes that are not optional."""
        return [name for name in self.plans if name not in self.optional]

    @property
    def program(self) -> str:
        """What to start for a command line that knows these plans."""
        modules = {getattr(plan, "__module__", "") for plan in self.plans.values()}
        return program("__main__" if "__main__" in modules else "")

    def command(self, recipe: str, scale: str) -> str:
        """What to type to train a recipe."""
        study = f" --study {self.folder}" if self.folder else ""
        return f"{self.program} sweep {recipe}{study} --scale {scale}"

    def about(self, name: str) -> str:
        """What a recipe trains, in a sentence."""
        return (self.plans[name].__doc__ or "").strip()

    def parts(self, scale: str, names: Iterable[str]) -> tuple[tuple[str, Plan], ...]:
        """(recipe, plan), one by one where a recipe has several: each can be done before the others."""
        plans = [(name, self.plans[name](scale)) for name in names]
        return tuple((name, part) for name, p in plans for part in (p.plans if isinstance(p, Several) else (p,)))

    def role(self, recipe: str, config: Config) -> str:
        """What a setting of this recipe is called."""
        return recipe if recipe in self.roles else config.estimator.name

    def chosen(self, lookup: Lookup, scale: str) -> dict[Role, Config]:
        """The setting that was chosen for each role, where that search is done."""
        configs: dict[Role, Config] = {}
        for name, plan in self.parts(scale, self.searches):
            for config in plan.chosen(lookup):
                configs[config.task, self.role(name, config)] = config
        return configs

    def searched(self, scale: str) -> dict[Role, tuple[str, Search]]:
        """The recipe that searches for each role, and the part of its plan that does."""
        return {
            (part.base.task, self.role(name, part.base)): (name, part)
            for name, part in self.parts(scale, self.searches)
            if isinstance(part, Grid | Sequential | Adaptive)
        }


def program(module: str) -> str:
    """`dst`, or `python FILE` where the module is the file that was started: `dst` by itself does not import it."""
    file = getattr(sys.modules["__main__"], "__file__", None) if module == "__main__" else None
    return f"python {shlex.quote(Path(file).name)}" if file else "dst"
