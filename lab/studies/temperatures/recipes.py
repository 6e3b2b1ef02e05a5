"""The plans of the study: the rule over learning rates, and the constants it is judged against.

What is judged has ten fresh seeds; nothing about the rule was chosen on them, nor on the seeds of the searches.
"""

from dst_lab.plans import FRESH_SEEDS, Confirm, Grid, Measured, Plan, Recipes, Several
from dst_lab.plans.recipes import at_paper_scale
from dst_lab.runs import Config
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinaryConfig

from studies.temperatures import vae
from studies.temperatures.settings import (
    AUTOENCODER_LR,
    BEST,
    NETWORK_LR,
    RULE,
    TUNED,
    WITHOUT_STEPS,
    judged_seeds,
    rivals,
    setting,
    tuned,
)


def self_autoencoder() -> Plan:
    """Categorical autoencoder: the rule at every learning rate; 10 seeds that nothing else has."""
    return _ruled(CategoricalAutoencoderConfig, AUTOENCODER_LR)


def self_untold() -> Plan:
    """Categorical autoencoder: the rule without the number of steps; the same 10 seeds."""
    return _ruled(CategoricalAutoencoderConfig, AUTOENCODER_LR, WITHOUT_STEPS)


def self_network() -> Plan:
    """Stochastic binary network: the rule and constants at three learning rates; 20 seeds that nothing else has."""
    seeds = judged_seeds(StochasticBinaryConfig)
    constants = (Measured(config, (), seeds) for by_name in rivals().values() for config in by_name.values())
    return Several((_ruled(StochasticBinaryConfig, NETWORK_LR), *constants))


def self_gates() -> Plan:
    """Logic gate network: the rule; 10 fresh seeds."""
    return Measured(setting(LogicGatesConfig, RULE, RULE), (), FRESH_SEEDS)


def tuned_constants() -> Plan:
    """All three: the constants that the paper's searches chose, with the same fresh seeds."""
    return Several(tuple(Measured(tuned(task), (), FRESH_SEEDS) for task in TUNED))


def constants_slow() -> Plan:
    """Stochastic binary network: constants at the lowest of its learning rates."""
    return _constants(min(NETWORK_LR))


def constants_fast() -> Plan:
    """Stochastic binary network: constants at the highest of its learning rates."""
    return _constants(max(NETWORK_LR))


def confirm_constants() -> Plan:
    """What the searches chose, with fresh seeds."""
    return Confirm(RECIPES.parts("paper", RECIPES.searches), FRESH_SEEDS)


def best_constants() -> Plan:
    """Autoencoder: at each learning rate the best constants of the paper's study, with the seeds of its searches."""
    return Several(
        tuple(
            Measured(setting(CategoricalAutoencoderConfig, *taus, lr=lr), (), tuple(range(10)))
            for lr, taus in BEST.items()
        )
    )


def _ruled(task: type[Config], rates: tuple[float, ...], rule: str = RULE) -> Plan:
    return Measured(setting(task, rule, rule), (("lr", rates),), judged_seeds(task))


def _constants(rate: float) -> Plan:
    base = setting(StochasticBinaryConfig, 0.0, 0.3, lr=rate)
    axes = (("tau_f", (0.0, 0.1)), ("tau_b", (0.1, 0.2, 0.3, 0.5, 0.7, 1.1, 1.9)))
    return Grid(base, axes, tuple(range(5)))


RECIPES = Recipes(
    folder="lab/studies/temperatures",
    scales=("paper",),
    plans=at_paper_scale(
        {
            "self-autoencoder": self_autoencoder,
            "self-network": self_network,
            "self-gates": self_gates,
            "tuned-constants": tuned_constants,
            "best-constants": best_constants,
            "constants-slow": constants_slow,
            "constants-fast": constants_fast,
            **vae.PLANS,
            "confirm-constants": confirm_constants,
            "self-untold": self_untold,
        }
    ),
    searches=("constants-slow", "constants-fast", *vae.PLANS),
    confirm="confirm-constants",
    optional=("best-constants", "self-untold"),
    roles={"constants-slow": "the lowest rate", "constants-fast": "the highest rate", **vae.ROLES},
)
