"""Plans that begin where others ended, such as confirmation with fresh seeds."""

from dataclasses import dataclass, replace

from dst_lab.plans.plan import Lookup, Plan, seeded
from dst_lab.runs import FRESH, Config

FRESH_SEEDS = tuple(range(FRESH, FRESH + 10))


@dataclass(frozen=True)
class Following(Plan):
    """What follows from the settings that earlier plans chose; nothing until those plans are done, and nothing from the
    relaxations, which are references that no claim judges."""

    before: tuple[tuple[str, Plan], ...]
    """(name, plan)."""
    seeds: tuple[int, ...]

    def wanted(self, lookup: Lookup) -> list[Config]:
        settled = [config for _, plan in self.before for config in plan.chosen(lookup)]
        judged = [config for config in settled if config.estimator.kind.discrete]
        return seeded(list(dict.fromkeys(new for config in judged for new in self.variants(config))), self.seeds)

    def variants(self, config: Config) -> list[Config]:
        """What to train for one chosen setting."""
        return [config]

    def notes(self, lookup: Lookup) -> list[str]:
        undone = dict.fromkeys(name for name, plan in self.before if not plan.chosen(lookup))
        return [f"{name} is not done: sweep it first" for name in undone]

    def of(self, task: str) -> Plan | None:
        before = tuple((name, part) for name, plan in self.before if (part := plan.of(task)))
        return replace(self, before=before) if before else None


class Confirm(Following):
    """The chosen settings again, with seeds that no search has seen."""
