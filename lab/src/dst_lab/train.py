"""Follow a plan on an engine into a store. The command line and studies call this; so can you.

    from dst_lab.engines.local import LocalEngine
    from dst_lab.train import follow

    plan = Grid(base, (("tau_f", (0.0, 0.5, 1.0)),), seeds=(0, 1, 2))
    follow(plan, LocalEngine(torch.device("cpu")), Path("dst.sqlite"))

Run again, it trains what is missing.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dst_lab.engines.engine import Engine, EngineLostError, Job, Progress, by_fleet
from dst_lab.fleet.checkpoint import Checkpoints, folder_of
from dst_lab.fleet.recording import own_sources
from dst_lab.records import Reader, remaining
from dst_lab.runs import Config
from dst_lab.store import Record, Store
from dst_lab.tasks import TASKS

if TYPE_CHECKING:
    from dst_lab.plans import Plan, Recipes

Round = Callable[["Outcome", Sequence[Config], Store], None]
"""Called after each round of training: what became of it, all the runs that are wanted so far, and the store."""


@dataclass
class Outcome:
    """What became of a round of training."""

    wanted: int
    already: int
    trained: int = 0
    diverged: int = 0
    left: int = 0
    """Not trained because the time was up, or for the reason in `lost`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Runs whose code failed: what they are, and why."""
    worse: list[str] = field(default_factory=list)
    """The ids of those that are done, and worse than untrained networks."""
    without_network: tuple[str, ...] = ()
    """The ids of runs that were there already, without the network that is wanted."""
    lost: str = ""
    """What broke off the training, in a sentence: the engine's workers are gone."""

    def count(self, record: Record, config: Config) -> None:
        """A run has ended."""
        self.trained += record.status != "failed"
        self.diverged += record.status == "diverged"
        if "worse_than_untrained" in record.detail:
            self.worse.append(record.run_id)
        if record.status == "failed":
            self.failed[_name(config)] = f"{record.detail['reason']} ({record.detail['where']})"


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


def train(
    configs: Sequence[Config], engine: Engine, store: Store | Path, job: Job | None = None, after: Round | None = None
) -> Outcome:
    """Train those of these runs that the store lacks."""
    job = job or Job()
    in_time = job.seconds_left() > 0
    with _opened(store, engine, configs) as records:
        _say_of_other_code(configs, records, job)
        outcome = _round(configs, engine, records, job, in_time)
        if after:
            after(outcome, configs, records)
        return outcome


def follow(
    plan: "Plan", engine: Engine, store: Store | Path, job: Job | None = None, after: Round | None = None
) -> Followed:
    """Round after round: what the plan wants next, until it wants nothing, a run fails, or the time is up.

    Trains at least one step if the deadline has not passed, so that the same call, repeated, comes to an end.
    """
    job = job or Job()
    in_time = job.seconds_left() > 0
    rounds: list[Outcome] = []
    with _opened(store, engine, plan.wanted(lambda _: None)) as records:
        missing, wanted = remaining(plan, records)
        _say_of_other_code(missing, records, job)
        while missing:
            outcome = _round(missing, engine, records, job, in_time, before=len(wanted) - len(missing))
            rounds.append(outcome)
            if after:
                after(outcome, wanted, records)
            missing, wanted = remaining(plan, records)
            in_time = job.seconds_left() > 0
            if outcome.failed or outcome.left or not in_time:
                break
        notes = plan.notes(Reader(records).scores())
        ids = [config.run_id for config in wanted]
        lacking = without_network(records, ids) if job.networks else ()
        return Followed(not missing, rounds, notes, len(missing), len(wanted), lacking)


def reproduce(
    recipes: "Recipes",
    scale: str,
    engine: Engine,
    store: Path,
    job: Job | None = None,
    begin: Callable[[str], None] | None = None,
    after: Round | None = None,
) -> Iterator[tuple[str, Followed]]:
    """Every recipe that is not optional, one after the other, while there is time; `begin` is given its name."""
    job = job or Job()
    untrained = job.seconds_left() > 0  # there was time at first, and nothing has been trained yet
    for name in recipes.needed:
        late = job.seconds_left() <= 0
        if late and not untrained:
            return
        if begin:
            begin(name)
        # To see that a recipe is done takes time, which is not to keep the next one from being started.
        moment = replace(job, deadline=time.monotonic() + 0.05) if late else job
        followed = follow(recipes.plans[name](scale), engine, store, moment, after)
        untrained = untrained and not followed.rounds
        yield name, followed


def without_network(store: Store, runs: Collection[str]) -> tuple[str, ...]:
    """The runs among these that are done and have no kept network."""
    done = {run.id for run in store.runs(status="done")}
    return tuple(sorted(done.intersection(runs) - store.kept()))


@contextmanager
def _opened(store: Store | Path, engine: Engine, configs: Sequence[Config]) -> Iterator[Store]:
    if isinstance(store, Store):
        yield store
        return
    path = Path(store).expanduser()
    if not path.exists():
        # So that what cannot be trained leaves no empty store behind.
        engine.check(configs)
    with Store.open(path, write=True) as records:
        yield records


def _round(
    configs: Sequence[Config], engine: Engine, store: Store, job: Job, in_time: bool, before: int = 0
) -> Outcome:
    """Train the runs that the store lacks, and record each chunk as it ends. Those that failed are tried again.

    `before` runs of the plan came before these; `in_time`: there was time to train when the command began.
    """
    if job.checkpoint_seconds is not None:
        job = replace(job, checkpoints=Checkpoints(folder_of(store.path), job.checkpoint_seconds, job.say))
    wanted = {config.run_id: config for config in configs}
    finished, checkpoints = store.finished(), job.checkpoints
    pending = {run: config for run, config in wanted.items() if run not in finished}
    outcome = Outcome(len(wanted) + before, len(wanted) + before - len(pending))
    outcome.without_network = without_network(store, wanted) if job.networks else ()
    if checkpoints:
        checkpoints.tidy(finished)
    if job.progress:
        job.progress(Progress(wanted=len(pending)))
    try:
        for result in engine.train(*_chunks(pending, checkpoints), job) if in_time else ():
            if not result.records:
                continue
            store.put(result.records)
            if checkpoints:
                checkpoints.of([record.run_id for record in result.records]).remove()
            for record in result.records:
                outcome.count(record, pending.pop(record.run_id))
            if job.progress:
                done = outcome.wanted - outcome.already - len(pending)
                job.progress(Progress(records=result.records, done=done, wanted=done + len(pending)))
    except EngineLostError as error:
        outcome.lost = str(error)
    if checkpoints:
        checkpoints.tidy(store.finished())
    outcome.left = len(pending)
    return outcome


def _chunks(
    pending: dict[str, Config], checkpoints: Checkpoints | None
) -> tuple[list[list[Config]], list[list[Config]]]:
    """The chunks that were started before, as they were put together, and the others by fleet. No run is in two."""
    free = dict(pending)
    saved = checkpoints.started(free) if checkpoints else []
    # An earlier version may have put runs together that are no longer trained as one program.
    saved = [runs for runs in saved if len(by_fleet([pending[run] for run in runs])) == 1]
    started = [[free.pop(run) for run in runs] for runs in saved if all(run in free for run in runs)]
    return started, by_fleet(list(free.values()))


def _say_of_other_code(configs: Sequence[Config], store: Store, job: Job) -> None:
    """A sentence for each task, estimator or rule from outside of which the store has runs by another version of its
    module."""
    if not job.progress:
        return
    marks: dict[tuple[str, str], str] = {}
    for config in {config.fleet_key(): config for config in configs}.values():
        for part, (name, mark) in own_sources(TASKS[config.task], config.estimator).items():
            marks[part, name] = mark
    for (part, name), mark in marks.items():
        runs = [run for run in store.runs() if name in _parts(run.config)]
        # Runs that were recorded before there was such a mark have none, and count as of this version.
        others = sum(store.provenance(run.id).get(part, mark) != mark for run in runs)
        if others:
            job.say(
                f"{others:,} of the {len(runs):,} recorded runs of {name} were trained by another version of "
                "its module, and count as they are: where that matters, give another --store, or remove them"
            )


def _parts(config: Mapping[str, Any]) -> list[str]:
    """The names of a recorded run's task, of its estimator and of the rules that set its temperatures."""
    texts = [config["task"], *config["estimator"].values()]
    return [text.partition(":")[0] for text in texts if isinstance(text, str)]


def _name(config: Config) -> str:
    """A run in a person's words: what distinguishes it from its neighbours, and the id it is recorded under."""
    values = {**config.estimator.to_dict(), "lr": f"{config.lr:g}", "seed": config.seed}
    estimator = values.pop("name")
    text = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{config.task} {estimator} {text} ({config.run_id})"
