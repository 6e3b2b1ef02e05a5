"""What a plan still lacks, and what became of it: the same for every engine. Only the driver has one."""

from collections.abc import Collection, Iterable, Sequence

from dst_lab.engines.chunk import by_fleet
from dst_lab.engines.engine import Job, Outcome
from dst_lab.runs import Config
from dst_lab.store import Record, Store, run_id


class Ledger:
    """The runs of a plan that the store lacks, and what became of them. Runs that failed before are
    tried again.

    Args:
        configs: the plan.
        store: open for writing; this process is its only writer.
        job: where chunks in progress are saved; how many runs there were before; whether what is trained is kept: then
            those that are there already without it are counted.
    """

    def __init__(self, configs: Iterable[Config], store: Store, job: Job) -> None:
        self._store, self._checkpoints = store, job.checkpoints
        wanted = {run_id(config.to_dict()): config for config in configs}
        finished = store.finished()
        self.pending = {run: config for run, config in wanted.items() if run not in finished}
        self._wanted = len(wanted) + job.before
        self._already = self._wanted - len(self.pending)
        self._without = without_network(store, wanted) if job.networks else ()
        self._trained = self._diverged = self._stopped = 0
        self._failed: dict[str, str] = {}
        self._worse: list[str] = []
        if self._checkpoints:
            self._checkpoints.tidy(finished)

    def chunks(self) -> tuple[list[list[Config]], list[list[Config]]]:
        """(chunks begun before, the rest of the runs by fleet). No run is in two of them."""
        free = dict(self.pending)
        saved = self._checkpoints.begun(free) if self._checkpoints else []
        begun = [[free.pop(run) for run in runs] for runs in saved if all(run in free for run in runs)]
        return begun, by_fleet(list(free.values()))

    def record(self, records: Sequence[Record]) -> None:
        """Write a chunk's records, then let go of its checkpoint."""
        if not records:
            return
        self._store.put(records)
        if self._checkpoints:
            self._checkpoints.of([record.run_id for record in records]).remove()
        for record in records:
            config = self.pending.pop(record.run_id)
            self._trained += record.status not in ("failed", "stopped")
            self._stopped += record.status == "stopped"
            self._diverged += record.status == "diverged"
            if "worse_than_untrained" in record.detail:
                self._worse.append(record.run_id)
            if record.status == "failed":
                self._failed[_name(config)] = f"{record.detail['reason']} ({record.detail['where']})"

    def close(self, lost: str = "") -> Outcome:
        """Tidy up, and say what became of the plan."""
        self._store.check()
        if self._checkpoints:
            self._checkpoints.tidy(self._store.finished())
        return Outcome(
            self._wanted,
            self._already,
            self._trained,
            self._diverged,
            len(self.pending),
            self._failed,
            self._stopped,
            self._without,
            tuple(self._worse),
            lost,
        )


def without_network(store: Store, runs: Collection[str]) -> tuple[str, ...]:
    """Those of these runs that are done and whose network was not kept."""
    done = {run.id for run in store.runs(status="done")}
    return tuple(sorted(done.intersection(runs) - store.kept()))


def _name(config: Config) -> str:
    """A run in a person's words: what distinguishes it from its neighbours, and the id it is recorded under."""
    values = {**config.estimator.to_dict(), "lr": f"{config.lr:g}", "seed": config.seed}
    estimator = values.pop("name")
    text = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{config.task} {estimator} {text} ({run_id(config.to_dict())})"
