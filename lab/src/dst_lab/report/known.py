"""The studies that this process knows: registered by their modules, or loaded from a folder."""

import sys
from importlib import import_module
from pathlib import Path

from dst_lab.cards import refuse_other
from dst_lab.plans import Recipe
from dst_lab.report.study import Study

ANY = Study(
    name="any",
    title="Runs of a store",
    lead="Every task that is recorded here: the best settings, training curves, which fields mattered, and maps over "
    "temperatures.",
)
"""A page for whatever a store holds: no question, no claim."""
STUDIES: dict[str, Study] = {ANY.name: ANY}


def register(study: Study, *, replace: bool = False) -> Study:
    """Make a study known to `dst` in this process; it takes the place of another of its name only with `replace`."""
    if study.name in STUDIES and (not replace or study.name == ANY.name):
        refuse_other("study", STUDIES[study.name], study)
    taken = recipes()
    for name in study.recipes.plans:
        owner, _ = taken.get(name, (study, None))
        if owner.name != study.name:
            raise ValueError(f"the study {owner.name} has a recipe called {name!r} already: give yours another name")
    STUDIES[study.name] = study
    return study


def study(name: str) -> Study:
    """A study by its name, or by the folder that holds it, such as lab/studies/paper: a package that registers a study
    of the folder's name when it is imported."""
    folder = Path(name).resolve()
    if name not in STUDIES and (folder / "__init__.py").is_file():
        name = folder.name
        parts: list[str] = []
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        sys.path.insert(0, str(folder))
        import_module(".".join(parts))
    if name not in STUDIES:
        known = ", ".join(STUDIES)
        raise ValueError(f"there is no study {name!r}: name a folder such as lab/studies/paper, or one of {known}")
    return STUDIES[name]


def recipes() -> dict[str, tuple[Study, Recipe]]:
    """The recipes of all known studies by their names, each with its study."""
    return {name: (one, make) for one in STUDIES.values() for name, make in one.recipes.plans.items()}
