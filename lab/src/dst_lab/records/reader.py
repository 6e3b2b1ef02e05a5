"""The one reader of a store: every run by its id or config, each history read once."""

import math
from collections.abc import Callable, Mapping
from functools import partial

from dst_lab.plans import Early, Lookup, Plan
from dst_lab.records.row import Row
from dst_lab.runs import Config
from dst_lab.store import Store, run_id

ENDED = ("done", "diverged")


class Reader:
    """A store as it is now."""

    def __init__(self, store: Store, rows: Mapping[str, Row] | None = None) -> None:
        self.store = store
        self.rows = rows if rows is not None else {r.id: Row(r, partial(store.history, r.id)) for r in store.runs()}

    def only(self, rows: Mapping[str, Row]) -> "Reader":
        """A reader of the same store that has these runs alone."""
        return Reader(self.store, rows)

    def row(self, config: Config) -> Row | None:
        """The run of this config, however it ended; None where there is none."""
        return self.rows.get(run_id(config.to_dict()))

    def find(self, config: Config) -> Row | None:
        """The run of this config; None where it is not there, or has not ended by itself."""
        row = self.row(config)
        return row if row is not None and row.run.status in ENDED else None

    def scores(self, *, stopped: bool = False) -> Lookup:
        """Each run's lowest validation loss over training; infinite where it diverged.

        `stopped`: whether the runs that were stopped early count, with the lowest loss they came to.
        """
        ended = (*ENDED, "stopped") if stopped else ENDED
        known: dict[str, float] = {}

        def lookup(config: Config) -> float | None:
            row = self.row(config)
            if row is None or row.run.status not in ended:
                return None
            run = row.run
            if run.id not in known:
                diverged = run.status == "diverged"
                lowest = math.inf if diverged else float(row.history["validation_loss"].values.min())
                score = lowest if math.isfinite(lowest) else math.inf
                known[run.id] = Early(score) if run.status == "stopped" else score
            return known[run.id]

        return lookup


def known_to(plan: Plan, store: Store) -> Lookup:
    """The scores that count for this plan."""
    return Reader(store).scores(stopped=plan.early is not None)


def remaining(plan: Plan, store: Store) -> list[Config]:
    """What the plan wants next, given the store, and the store lacks."""
    return _asked(plan, store)[0]


def _asked(plan: Plan, store: Store) -> tuple[list[Config], list[Config]]:
    """What the plan wants and the store lacks, and all that it wants so far."""
    lookup = known_to(plan, store)
    wanted = plan.wanted(lookup)
    return [config for config in wanted if lookup(config) is None], wanted


def pursue(plan: Plan, store: Store, train: Callable[[list[Config], list[Config]], bool]) -> bool:
    """Train what the plan wants and the store lacks, round after round. `train` is given what is lacking, and all that
    is wanted so far, and says whether to go on after the round; returns whether the plan is done."""
    while True:
        missing, wanted = _asked(plan, store)
        if not missing:
            return True
        if not train(missing, wanted):
            return False
