"""What is trained, one file each."""

from dst_lab.fleet.task import Task
from dst_lab.tasks.bias_variance import BiasVariance
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoder
from dst_lab.tasks.logic_gates import LogicGates
from dst_lab.tasks.stochastic_binary import StochasticBinary

TASKS: dict[str, type[Task]] = {
    task.config_type.task: task for task in (StochasticBinary, CategoricalAutoencoder, LogicGates, BiasVariance)
}

__all__ = ["TASKS", "BiasVariance", "CategoricalAutoencoder", "LogicGates", "StochasticBinary"]
