"""What other installed packages add to the laboratory: tasks, estimators, rules for temperatures, studies.

A package names a module in its pyproject.toml, and the module calls the `register` functions when it is imported:

    [project.entry-points."dst_lab.plugins"]
    routing = "my_package.routing"
"""

import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dst_lab.cards import shown
from dst_lab.estimators import kinds, rules
from dst_lab.runs import CONFIGS

GROUP = "dst_lab.plugins"


@cache
def load() -> frozenset[str]:
    """Import what installed packages offer, once in a process; the names of tasks, estimators and rules among it.

    One that cannot be imported is named and left out: the others, and the records, stay in reach.
    """
    before = {*CONFIGS, *kinds(), *rules()}
    for entry in entry_points(group=GROUP):
        _load(entry)
    return frozenset({*CONFIGS, *kinds(), *rules()} - before)


def _load(entry: EntryPoint) -> None:
    try:
        entry.load()
    except (Exception, SystemExit) as error:  # one that ends the program is named, too
        owner = entry.dist.name if entry.dist else "a package"
        reason = f"{type(error).__name__}: {error}"
        with suppress(BrokenPipeError):  # the reader has gone
            message = f"dst: {owner} adds {entry.value}, which cannot be imported ({reason}); left out"
            print(shown(message), file=sys.stderr)
