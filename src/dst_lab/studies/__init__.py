"""One folder per question: its recipes, its rules, its figures, and what its page says."""

from dst_lab.configs.estimators import is_known
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
BUILT_IN = frozenset(STUDIES)


def register(study: Study) -> Study:
    """Make a study of your own known to `dst` in this process."""
    if study.name in BUILT_IN:
        raise ValueError(f"there is a study called {study.name!r} already: give yours another name")
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


def study_of(store: Store) -> Study:
    """The study of a page where none is asked for: the one of whose recipes the store has most runs, of equals the
    first; for a store of other runs alone, a page of those."""
    runs = {run.id for run in store.runs()}
    if not runs:
        return STUDIES[DEFAULT]
    shared = {name: len(runs & _begun(one)) for name, one in STUDIES.items()}
    most = max(shared, key=lambda name: shared[name])
    return STUDIES[most] if shared[most] else ANY


def _begun(one: Study) -> set[str]:
    """The ids of the runs that its recipes begin with, at both scales."""
    plans: list[Plan] = [make(scale) for make in one.recipes.plans.values() for scale in ("quick", "paper")]
    return {run_id(config.to_dict()) for plan in plans for config in plan.wanted(lambda _: None)}
