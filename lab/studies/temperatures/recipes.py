"""The plans of the study: the rule over learning rates, the constants it is judged against, and its parts varied.

What is judged has ten fresh seeds; nothing about the rule was chosen on them, nor on the seeds of the searches.
"""

from typing import Any

from dst_lab.configs import CategoricalAutoencoderConfig, Config, LogicGatesConfig, StochasticBinaryConfig
from dst_lab.plans import Confirm, Grid, Measured, Plan, Recipes, Several

from studies.temperatures import vae
from studies.temperatures.settings import (
    AUTOENCODER_LR,
    BEFORE,
    BEST,
    NETWORK_LR,
    QUICK_LR,
    RULE,
    TUNED,
    UNTOLD,
    fresh,
    judged_seeds,
    rates,
    rivals,
    setting,
    tuned,
)
from studies.temperatures.variants import (
    schedules,
    self_constants,
    self_floors,
    self_limits,
    self_others,
    self_parts,
    self_shapes,
    self_varied,
    shape_constants,
)


def self_autoencoder(scale: str) -> Plan:
    """Categorical autoencoder: the rule at every learning rate; 10 seeds that nothing else has."""
    return _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR)


def self_untold(scale: str) -> Plan:
    """Categorical autoencoder: the rule without being told the number of steps; the same 10 seeds."""
    return _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR, rule=UNTOLD)


def self_network(scale: str) -> Plan:
    """Stochastic binary network: the rule and constants at three learning rates; 20 seeds that nothing else has."""
    seeds = judged_seeds(StochasticBinaryConfig, scale)
    constants = (Measured(config, (), seeds) for by_name in rivals(scale).values() for config in by_name.values())
    return Several((_ruled(StochasticBinaryConfig, scale, NETWORK_LR), *constants))


def first_judged(scale: str) -> Plan:
    """Autoencoder and binary network: the rule as it was first judged, with twice the floor; 10 fresh seeds."""
    return Several(
        (
            _ruled(CategoricalAutoencoderConfig, scale, AUTOENCODER_LR, fresh(scale), BEFORE),
            _ruled(StochasticBinaryConfig, scale, NETWORK_LR, fresh(scale), BEFORE),
        )
    )


def self_gates(scale: str) -> Plan:
    """Logic gate network: the rule; 10 fresh seeds."""
    return Measured(setting(LogicGatesConfig, scale, RULE, RULE), (), fresh(scale))


def tuned_constants(scale: str) -> Plan:
    """All three: the constants that the paper's searches chose, with the same fresh seeds."""
    return Several(tuple(Measured(tuned(task, scale), (), fresh(scale)) for task in TUNED))


def constants_slow(scale: str) -> Plan:
    """Stochastic binary network: constants at the lowest of its learning rates."""
    return _constants(scale, min)


def constants_fast(scale: str) -> Plan:
    """Stochastic binary network: constants at the highest of its learning rates."""
    return _constants(scale, max)


def confirm_constants(scale: str) -> Plan:
    """What the searches chose, with fresh seeds."""
    return Confirm(RECIPES.parts(scale, RECIPES.searches), fresh(scale))


def best_constants(scale: str) -> Plan:
    """Autoencoder: at each learning rate the best constants of the paper's study, with the seeds of its searches."""
    seeds = tuple(range(10 if scale == "paper" else 2))
    best = BEST if scale == "paper" else {QUICK_LR[0]: (2.0, 0.5)}
    return Several(
        tuple(
            Measured(setting(CategoricalAutoencoderConfig, scale, *taus, lr=lr), (), seeds) for lr, taus in best.items()
        )
    )


def _ruled(
    task: type[Config], scale: str, at: tuple[float, ...], seeds: tuple[int, ...] | None = None, rule: str = RULE
) -> Plan:
    axes = (("lr", rates(scale, at)),)
    return Measured(setting(task, scale, rule, rule), axes, judged_seeds(task, scale) if seeds is None else seeds)


def _constants(scale: str, which: Any) -> Plan:
    rate = which(rates(scale, NETWORK_LR))
    base = setting(StochasticBinaryConfig, scale, 0.0, 0.3, lr=rate)
    taus = (0.1, 0.2, 0.3, 0.5, 0.7, 1.1, 1.9) if scale == "paper" else (0.3, 0.7)
    seeds = tuple(range(5 if scale == "paper" else 2))
    return Grid(base, (("tau_f", (0.0, 0.1)), ("tau_b", taus)), seeds)


SCHEDULES = {
    "schedules-autoencoder": (CategoricalAutoencoderConfig, 1e-3),
    "schedules-slow": (StochasticBinaryConfig, min(NETWORK_LR)),
    "schedules-network": (StochasticBinaryConfig, 1e-3),
}
RECIPES = Recipes(
    folder="lab/studies/temperatures",
    plans={
        "self-autoencoder": self_autoencoder,
        "self-network": self_network,
        "self-gates": self_gates,
        "tuned-constants": tuned_constants,
        "best-constants": best_constants,
        "constants-slow": constants_slow,
        "constants-fast": constants_fast,
        **vae.PLANS,
        **{name: schedules(*of) for name, of in SCHEDULES.items()},
        "confirm-constants": confirm_constants,
        "self-untold": self_untold,
        "first-judged": first_judged,
        "self-parts": self_parts,
        "self-constants": self_constants,
        "self-varied": self_varied,
        "self-floors": self_floors,
        "self-shapes": self_shapes,
        "shape-constants": shape_constants,
        "self-limits": self_limits,
        "self-others": self_others,
        "self-vae-others": vae.other_rules,
    },
    searches=("constants-slow", "constants-fast", *vae.PLANS, *SCHEDULES),
    confirm="confirm-constants",
    optional=(
        "best-constants", "self-untold", "first-judged", "self-parts", "self-constants", "self-varied", "self-floors",
        "self-shapes", "self-others", "self-vae-others", "shape-constants", "self-limits", *SCHEDULES,
    ),
    roles={
        "constants-slow": "the lowest rate",
        "constants-fast": "the highest rate",
        **vae.ROLES,
        **{name: f"schedules at {lr:g}" for name, (_, lr) in SCHEDULES.items()},
    },
)  # fmt: skip
