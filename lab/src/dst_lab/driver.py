"""Follow a plan on an engine into a store. The command line and studies call this; so can you.

    from dst_lab.driver import Driver
    from dst_lab.engines.local import LocalEngine

    driver = Driver(LocalEngine(torch.device("cpu")), Path("dst.sqlite"))
    driver.follow(Grid(base, (("tau_f", (0.0, 0.5, 1.0)),), seeds=(0, 1, 2)))

Run again, it trains what is missing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from dst_lab.engines.checkpoints import Checkpoints, folder_of
from dst_lab.engines.engine import Engine, Job, Outcome, Watch
from dst_lab.engines.ledger import without_network
from dst_lab.plans import Plan, Recipes
from dst_lab.records import known_to, pursue, remaining
from dst_lab.runs import Config
from dst_lab.store import Store, run_id

MOMENT = 0.05
"""Seconds in which a plan can be asked whether it is done, and a budget above 0 has not run out before it is read."""


class Look(NamedTuple):
    """Who looks on at one round of training, and who may stop it."""

    watch: Watch | None = None
    stop: Callable[[], bool] | None = None
    say: Callable[[str], None] | None = None


class Audience(Protocol):
    """Who is told what goes on."""

    def looking(self) -> AbstractContextManager[Look]:
        """A look at what is trained, for the time of a round."""

    def told(self, outcome: Outcome, configs: Sequence[Config], store: Store) -> None:
        """What became of a round."""


class Nobody:
    """An audience that is not there."""

    def looking(self) -> AbstractContextManager[Look]:
        return nullcontext(Look())

    def told(self, outcome: Outcome, configs: Sequence[Config], store: Store) -> None:
        pass


@dataclass(frozen=True)
class Followed:
    """How far a plan came."""

    done: bool
    rounds: list[Outcome]
    notes: list[str]
    """What the plan says of it."""
    left: int
    """Runs that it wants next and that are not there."""
    wanted: int
    """All runs that it wants so far."""
    without_network: tuple[str, ...] = ()
    """The ids of those that were recorded without their networks, where networks are kept."""


@dataclass(frozen=True)
class Driver:
    """Trains into one store on one engine.

    Args:
        engine: where runs are trained.
        path: the store, made where it is missing; chunks in progress are saved beside it.
        fleet: at most this many runs at once; None: as many as fit.
        checkpoint_seconds: between one checkpoint and the next.
        networks: whether to keep the trained networks beside the store.
        audience: who is told what goes on.
    """

    engine: Engine
    path: Path
    fleet: int | None = None
    checkpoint_seconds: float = 60.0
    networks: bool = False
    audience: Audience = field(default_factory=Nobody)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).expanduser())

    def train(self, configs: Sequence[Config], deadline: float | None = None) -> Outcome:
        """These runs, those of them that the store lacks. `deadline` is a time of `time.monotonic`."""
        begins = _in_time(deadline)
        with self._opened(configs) as store:
            return self._round(configs, store, deadline, begins, tell=True)

    def follow(self, plan: Plan, deadline: float | None = None) -> Followed:
        """Round after round: what the plan wants next, until it wants nothing, a run fails, or the time is up.

        Where there is any time at first, a run goes on or is begun, if only by a step, however long it takes to come
        so far: the same call, made again and again, comes to an end.
        """
        rounds: list[Outcome] = []
        begins = _in_time(deadline)
        with self._opened(plan.wanted(lambda _: None)) as store:

            def one_round(missing: list[Config], wanted: list[Config]) -> bool:
                first = begins and not rounds
                begin = first or _in_time(deadline)
                rounds.append(self._round(missing, store, deadline, begin, plan, wanted, tell=not rounds))
                return not (rounds[-1].failed or rounds[-1].left) and _in_time(deadline)

            done = pursue(plan, store, one_round)
            lookup = known_to(plan, store)
            left, wanted = len(remaining(plan, store)), plan.wanted(lookup)
            lacking = without_network(store, [run_id(config.to_dict()) for config in wanted]) if self.networks else ()
            return Followed(done, rounds, plan.notes(lookup), left, len(wanted), lacking)

    def reproduce(
        self, recipes: Recipes, scale: str, deadline: float | None = None, begin: Callable[[str], None] | None = None
    ) -> Iterator[tuple[str, Followed]]:
        """Every recipe that is not optional, one after the other, while there is time; `begin` is told its name."""
        begins = _in_time(deadline)
        for name in recipes.needed:
            if not (begins or _in_time(deadline)):
                return
            if begin:
                begin(name)
            # To see that a recipe is done takes time, which is not to keep the next one from being begun.
            late = begins and not _in_time(deadline)
            followed = self.follow(recipes.plans[name](scale), time.monotonic() + MOMENT if late else deadline)
            begins = begins and not followed.rounds
            yield name, followed

    @contextmanager
    def _opened(self, configs: Sequence[Config]) -> Iterator[Store]:
        if not self.path.exists():
            # So that what cannot be trained leaves no empty store behind.
            self.engine.check(configs)
        with Store.open(self.path, write=True) as store:
            yield store

    def _round(
        self,
        configs: Sequence[Config],
        store: Store,
        deadline: float | None,
        begins: bool,
        plan: Plan | None = None,
        wanted: Sequence[Config] = (),
        tell: bool = False,
    ) -> Outcome:
        """Train these configs; `wanted` are all that their plan wants so far. `begins`: by a step at least. `tell`:
        say where recorded runs are of other code."""
        with self.audience.looking() as look:
            if look.say and tell:
                for sentence in _of_other_code(configs, store):
                    look.say(sentence)
            checkpoints = Checkpoints(folder_of(self.path), self.checkpoint_seconds, look.say)
            job = Job(
                checkpoints=checkpoints,
                watch=look.watch,
                stop=look.stop,
                most=self.fleet,
                seconds_left=None if deadline is None else (lambda: deadline - time.monotonic()),
                prune=plan.early if plan else None,
                networks=self.networks,
                before=len(wanted) - len(configs) if wanted else 0,
            )
            before = checkpoints.saved()
            outcome = self.engine.train(configs, store, job)
            advanced = checkpoints.saved() - before
            if deadline is not None and begins and outcome.idle and (_in_time(deadline) or not advanced):
                # Not even one run ends in the time, or what comes before training took all of it: what was begun goes
                # on, or one is begun, if only by a step, and saved for the same command to go on with.
                outcome = self.engine.train(configs, store, replace(job, longer=True))
        # After the live display, which would be drawn over what is printed beside it.
        self.audience.told(outcome, wanted or configs, store)
        return outcome


def _of_other_code(configs: Sequence[Config], store: Store) -> Iterator[str]:
    """A sentence for each task of somebody's own of which the store has runs by another version of its module."""
    from dst_lab.fleet.saved.provenance import source_of
    from dst_lab.tasks import TASKS

    for task in dict.fromkeys(config.task for config in configs if config.task in TASKS):
        if now := source_of(TASKS[task]):
            runs = store.runs(task=task)
            first = {run.provenance_id: run.id for run in runs}
            origins = {key: {**now, **store.provenance(run)} for key, run in first.items()}  # earlier ones say none
            others = [run for run in runs if not now.items() <= origins[run.provenance_id].items()]
            if others:
                yield (
                    f"{len(others):,} of the {len(runs):,} recorded runs of {task} were trained by another version of "
                    "its module, and count as they are: where that matters, give another --store, or remove them"
                )


def _in_time(deadline: float | None) -> bool:
    return deadline is None or time.monotonic() < deadline
