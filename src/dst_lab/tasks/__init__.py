"""What is trained, one file each."""

from typing import TypeVar

from dst_lab.configs import CONFIGS
from dst_lab.fleet.task import Task
from dst_lab.tasks.bias_variance import BiasVariance
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoder
from dst_lab.tasks.logic_gates import LogicGates
from dst_lab.tasks.stochastic_binary import StochasticBinary

OwnTask = TypeVar("OwnTask", bound=type[Task])
TASKS: dict[str, type[Task]] = {
    task.config_type.task: task for task in (StochasticBinary, CategoricalAutoencoder, LogicGates, BiasVariance)
}


def register(task: OwnTask) -> OwnTask:
    """Make a task of your own known to `dst` in this process, by the name in its config type; also a decorator."""
    name = task.config_type.task
    if TASKS.get(name, task) is not task:
        raise ValueError(f"there is a task called {name!r} already: give yours another name")
    TASKS[name], CONFIGS[name] = task, task.config_type
    return task


__all__ = ["TASKS", "BiasVariance", "CategoricalAutoencoder", "LogicGates", "StochasticBinary", "register"]
