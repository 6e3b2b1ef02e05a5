"""What the paper's chosen settings lead to: a falling tau_f, and details that it does not state set otherwise."""

from dst_lab.plans import Following
from dst_lab.plans.plan import value_of, with_value
from dst_lab.runs import WHOLE, Config


class Annealed(Following):
    """The chosen settings of Decoupled ST with tau_f falling from its value to a quarter of it, or to 0."""

    def variants(self, config: Config) -> list[Config]:
        tau_f = value_of(config, "tau_f") if "tau_f" in config.estimator.kind.temperatures() else 0
        if not isinstance(tau_f, float) or tau_f == 0:
            return []
        schedules = (f"{tau_f}:{tau_f / 4}:linear", f"{tau_f}:0.0:linear", f"{tau_f}:0.0:cosine")
        return [with_value(config, "tau_f", schedule) for schedule in schedules]


class Detailed(Following):
    """The chosen settings with one detail, of those that the paper does not state, set otherwise."""

    def variants(self, config: Config) -> list[Config]:
        return list(otherwise(config).values())


def otherwise(config: Config) -> dict[str, Config]:
    """What else an unstated detail could be, one at a time, in words."""
    whole = with_value(config, "dataset", config.dataset.removesuffix(WHOLE) + WHOLE)
    return {"no images held out": whole, **_of_task(config)}


def _of_task(config: Config) -> dict[str, Config]:
    if config.task == "logic-gates":
        tau = round(3 * value_of(config, "group_tau"), 6)
        return {
            f"class sums divided by {tau:g}": with_value(config, "group_tau", tau),
            "random wiring": with_value(config, "wiring", "random"),
            "residual initialisation": with_value(config, "residual", 5.0),
        }
    if config.task == "categorical-autoencoder":
        hidden = tuple(width // 2 for width in value_of(config, "hidden"))
        return {f"hidden layers of {' and '.join(map(str, hidden))}": with_value(config, "hidden", hidden)}
    return {}
