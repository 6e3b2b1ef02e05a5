"""Following a plan to its end: ask what is wanted, train what is missing, ask again."""

import math
from collections.abc import Callable

from dst_lab.configs import Config
from dst_lab.plans.plan import Lookup, Plan
from dst_lab.store import Store, run_id


def scores(store: Store) -> Lookup:
    """Each run's lowest validation loss over training, as the store has it now; infinite where it diverged."""
    status = {run.id: run.status for run in store.runs()}
    known: dict[str, float] = {}

    def lookup(config: Config) -> float | None:
        run = run_id(config.to_dict())
        if status.get(run) not in ("done", "diverged"):
            return None
        if run not in known:
            known[run] = (
                float(store.history(run)["validation_loss"].values.min()) if status[run] == "done" else math.inf
            )
        return known[run]

    return lookup


def pursue(plan: Plan, store: Store, train: Callable[[list[Config]], bool]) -> bool:
    """Train what the plan wants and the store lacks, round after round. `train` says whether to go on after a round;
    returns whether the plan is done."""
    while missing := remaining(plan, store):
        if not train(missing):
            return False
    return True


def remaining(plan: Plan, store: Store) -> list[Config]:
    """What the plan wants next, given the store, and the store lacks."""
    lookup = scores(store)
    return [config for config in plan.wanted(lookup) if lookup(config) is None]
