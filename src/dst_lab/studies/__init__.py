"""One folder per question: its recipes, its rules, its figures, and what its page says."""

from dst_lab.configs.estimators import is_known
from dst_lab.configs.registering import refuse_other
from dst_lab.plans import Plan, Recipe
from dst_lab.report import Study
from dst_lab.store import Store, run_id
from dst_lab.studies.any import ANY
from dst_lab.studies.circuits import CIRCUITS
from dst_lab.studies.codebooks import CODEBOOKS
from dst_lab.studies.estimators import ESTIMATORS
from dst_lab.studies.paper import PAPER
from dst_lab.studies.temperatures import TEMPERATURES

STUDIES: dict[str, Study] = {study.name: study for study in (PAPER, ESTIMATORS, TEMPERATURES, CIRCUITS, CODEBOOKS, ANY)}
DEFAULT = PAPER.name
FEW = 4
"""Fewer runs make no page of claims by themselves."""
BUILT_IN = frozenset(STUDIES)


def register(study: Study, *, replace: bool = False) -> Study:
    """Make a study of your own known to `dst` in this process; another of its name gives way only with `replace`."""
    if study.name in BUILT_IN and STUDIES[study.name] is not study:
        raise ValueError(f"there is a study called {study.name!r} already: give yours another name")
    if study.name in STUDIES and not replace:
        refuse_other("study", STUDIES[study.name], study)
    taken = recipes()
    for name in study.recipes.plans:
        owner, _ = taken.get(name, (study, None))
        if owner.name != study.name:
            raise ValueError(f"the study {owner.name} has a recipe called {name!r} already: give yours another name")
    STUDIES[study.name] = study
    return study


def study(name: str) -> Study:
    """A study by its name."""
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}: choose among {', '.join(STUDIES)}")
    return STUDIES[name]


def recipes() -> dict[str, tuple[Study, Recipe]]:
    """The recipes of all studies by their names, each with its study."""
    return {name: (one, make) for one in STUDIES.values() for name, make in one.recipes.plans.items()}


def compared(task: str) -> list[str]:
    """The estimators that a study of this task compares, of several studies the first; of none, those of the default
    study."""
    roles = next((one.roles for one in STUDIES.values() if task in one.tasks), STUDIES[DEFAULT].roles)
    return [role for role in roles if is_known(role)]


def study_of(store: Store, *, half: bool = False) -> Study:
    """The study of a store where none is asked for: the one of whose recipes it has most runs, of equals the first; for
    a store of other runs alone, none in particular.

    Args:
        half: count only recipes of which the store has at least half, and only where theirs are some of its runs, a
            quarter at least: a few runs of one's own may be part of a sweep, or all of a small one.
    """
    runs = {run.id for run in store.runs()}
    if not runs:
        return STUDIES[DEFAULT]
    begun = {
        name: [ids for ids in _begun(one) if not half or 2 * len(ids & runs) >= len(ids)]
        for name, one in STUDIES.items()
    }
    shared = {name: len(runs & set().union(*recipes)) for name, recipes in begun.items()}
    most = max(shared, key=lambda name: shared[name])
    least = max(FEW, len(runs) / 4) if half else 1
    return STUDIES[most] if shared[most] >= least else ANY


def _begun(one: Study) -> list[set[str]]:
    """The ids of the runs that each of its recipes begins with, at either scale."""
    plans: list[Plan] = [make(scale) for make in one.recipes.plans.values() for scale in ("quick", "paper")]
    return [{run_id(config.to_dict()) for config in plan.wanted(lambda _: None)} for plan in plans]
