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
    """A run's dictionary with the fields that it leaves out at their defaults; as it is, of a task that is not known.

    What compares runs by their fields reads this: a run without `optimiser` was trained with adam, not with nothing.
    """
    config_type = CONFIGS.get(config["task"])
    left_out = config_type.omitted() if config_type else {}
    return {**config, **{name: value for name, value in left_out.items() if name not in config}}


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
    "PolynomialConfig",
    "Ruled",
    "Schedule",
    "StochasticBinaryConfig",
    "Temperature",
    "card",
    "complete",
]
