"""Plans that begin where others ended: confirmation with fresh seeds, and annealing from what was chosen."""

from dataclasses import dataclass

from dst_lab.configs import Config
from dst_lab.plans.plan import Lookup, Plan, seeded, value_of, with_value


@dataclass(frozen=True)
class Following(Plan):
    """What follows from the settings that earlier plans chose; nothing until those plans are done."""

    before: tuple[tuple[str, Plan], ...]
    """(name, plan)."""
    seeds: tuple[int, ...]

    def wanted(self, lookup: Lookup) -> list[Config]:
        settled = [config for _, plan in self.before for config in plan.chosen(lookup)]
        return seeded(list(dict.fromkeys(new for config in settled for new in self.variants(config))), self.seeds)

    def variants(self, config: Config) -> list[Config]:
        """What to train for one chosen setting."""
        return [config]

    def notes(self, lookup: Lookup) -> list[str]:
        return [f"{name} is not done: sweep it first" for name, plan in self.before if not plan.chosen(lookup)]


class Confirm(Following):
    """The chosen settings again, with seeds that no search has seen."""


class Annealed(Following):
    """The chosen settings of Decoupled ST with tau_f falling from its value to a quarter of it, or to 0."""

    def variants(self, config: Config) -> list[Config]:
        tau_f = value_of(config, "tau_f") if config.estimator.name == "decoupled" else 0
        if not isinstance(tau_f, float) or tau_f == 0:
            return []
        schedules = (f"{tau_f}:{tau_f / 4}:linear", f"{tau_f}:0.0:linear", f"{tau_f}:0.0:cosine")
        return [with_value(config, "tau_f", schedule) for schedule in schedules]
