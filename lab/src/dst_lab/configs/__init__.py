"""What a run is: frozen values, one file per task. No torch, so that plans, claims and reports need none."""

from collections.abc import Mapping
from typing import Any

from dst_lab.configs.bias_variance import BiasVarianceConfig
from dst_lab.configs.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.configs.categorical_vae import CategoricalVAEConfig
from dst_lab.configs.codebook_vae import CodebookVAEConfig
from dst_lab.configs.config import FRESH, WHOLE, Choice, Config
from dst_lab.configs.estimators import ESTIMATORS, Card, Option, Temperature, card
from dst_lab.configs.logic_gates import LogicGatesConfig
from dst_lab.configs.own import OwnConfig
from dst_lab.configs.polynomial import PolynomialConfig
from dst_lab.configs.rules import RULES, Ruled
from dst_lab.configs.schedule import Schedule
from dst_lab.configs.stochastic_binary import StochasticBinaryConfig

CONFIGS: dict[str, type[Config]] = {
    config.task: config
    for config in (
        StochasticBinaryConfig,
        CategoricalAutoencoderConfig,
        LogicGatesConfig,
        BiasVarianceConfig,
        CategoricalVAEConfig,
        PolynomialConfig,
        CodebookVAEConfig,
    )
}


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's dictionary with the fields that it leaves out at their defaults, and without those that nobody gave; of a
    task that is not known, with those that every task has.

    What shows runs, or compares them by their fields, reads this: a run without `optimiser` was trained with adam, not
    with nothing, and an objective of somebody's own with no learning rate, where none was given.
    """
    tuned = config["task"] == OwnConfig.task and "objective" in config
    return CONFIGS.get(config["task"], OwnConfig if tuned else Config).completed(config)


__all__ = [
    "CONFIGS",
    "ESTIMATORS",
    "FRESH",
    "RULES",
    "WHOLE",
    "BiasVarianceConfig",
    "Card",
    "CategoricalAutoencoderConfig",
    "CategoricalVAEConfig",
    "Choice",
    "CodebookVAEConfig",
    "Config",
    "LogicGatesConfig",
    "Option",
    "OwnConfig",
    "PolynomialConfig",
    "Ruled",
    "Schedule",
    "StochasticBinaryConfig",
    "Temperature",
    "card",
    "complete",
]
