"""What is trained, one file each."""

from dst_lab.fleet.task import Task
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoder, CategoricalAutoencoderConfig
from dst_lab.tasks.logic_gates import LogicGates, LogicGatesConfig
from dst_lab.tasks.stochastic_binary import StochasticBinary, StochasticBinaryConfig

TASKS: dict[str, type[Task]] = {
    task.config_type.task: task for task in (StochasticBinary, CategoricalAutoencoder, LogicGates)
}

__all__ = [
    "TASKS",
    "CategoricalAutoencoder",
    "CategoricalAutoencoderConfig",
    "LogicGates",
    "LogicGatesConfig",
    "StochasticBinary",
    "StochasticBinaryConfig",
]
