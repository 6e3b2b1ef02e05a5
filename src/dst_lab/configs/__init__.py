"""What a run is: frozen values, one file a task. No torch, so that plans, claims and reports need none."""

from dst_lab.configs.bias_variance import BiasVarianceConfig
from dst_lab.configs.categorical_autoencoder import CategoricalAutoencoderConfig
from dst_lab.configs.config import TEMPERATURES, WHOLE, Choice, Config
from dst_lab.configs.logic_gates import LogicGatesConfig
from dst_lab.configs.schedule import Schedule
from dst_lab.configs.stochastic_binary import StochasticBinaryConfig

CONFIGS: dict[str, type[Config]] = {
    config.task: config
    for config in (StochasticBinaryConfig, CategoricalAutoencoderConfig, LogicGatesConfig, BiasVarianceConfig)
}

__all__ = [
    "CONFIGS",
    "TEMPERATURES",
    "WHOLE",
    "BiasVarianceConfig",
    "CategoricalAutoencoderConfig",
    "Choice",
    "Config",
    "LogicGatesConfig",
    "Schedule",
    "StochasticBinaryConfig",
]
