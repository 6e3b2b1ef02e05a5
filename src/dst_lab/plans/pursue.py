"""Following a plan to its end: ask what is wanted, train what is missing, ask again."""

import math
from collections.abc import Callable

from dst_lab.configs import Config
from dst_lab.plans.plan import Early, Lookup, Plan
from dst_lab.store import Store, run_id


def scores(store: Store, *, stopped: bool = False) -> Lookup:
    """Each run's lowest validation loss over training, as the store has it now; infinite where it diverged.

    `stopped`: whether the runs that were stopped early count, with the lowest loss they came to.
    """
    ended = ("done", "diverged", "stopped") if stopped else ("done", "diverged")
    status = {run.id: run.status for run in store.runs()}
    known: dict[str, float] = {}

    def lookup(config: Config) -> float | None:
        run = run_id(config.to_dict())
        if status.get(run) not in ended:
            return None
        if run not in known:
            diverged = status[run] == "diverged"
            lowest = math.inf if diverged else float(store.history(run)["validation_loss"].values.min())
            known[run] = (Early if status[run] == "stopped" else float)(lowest if math.isfinite(lowest) else math.inf)
        return known[run]

    return lookup


def pursue(plan: Plan, store: Store, train: Callable[[list[Config]], bool]) -> bool:
    """Train what the plan wants and the store lacks, round after round. `train` says whether to go on after a round;
    returns whether the plan is done."""
    while missing := remaining(plan, store):
        if not train(missing):
            return False
    return True


def known_to(plan: Plan, store: Store) -> Lookup:
    """The scores that count for this plan."""
    return scores(store, stopped=plan.early is not None)


def remaining(plan: Plan, store: Store) -> list[Config]:
    """What the plan wants next, given the store, and the store lacks."""
    lookup = known_to(plan, store)
    return [config for config in plan.wanted(lookup) if lookup(config) is None]
