"""What is trained, one file each."""

from dataclasses import fields
from typing import TypeVar, get_type_hints

from dst_lab.configs import CONFIGS
from dst_lab.configs.registering import HOW
from dst_lab.fleet.contract import check_fields, check_type
from dst_lab.fleet.task import Task
from dst_lab.tasks.bias_variance import BiasVariance
from dst_lab.tasks.categorical_autoencoder import CategoricalAutoencoder
from dst_lab.tasks.categorical_vae import CategoricalVAE
from dst_lab.tasks.codebook_vae import CodebookVAE
from dst_lab.tasks.logic_gates import LogicGates
from dst_lab.tasks.polynomial import Polynomial
from dst_lab.tasks.stochastic_binary import StochasticBinary

OwnTask = TypeVar("OwnTask", bound=type[Task])
TASKS: dict[str, type[Task]] = {
    task.config_type.task: task
    for task in (
        StochasticBinary,
        CategoricalAutoencoder,
        LogicGates,
        BiasVariance,
        CategoricalVAE,
        Polynomial,
        CodebookVAE,
    )
}
BUILT_IN = frozenset(TASKS)


def register(task: OwnTask, *, replace: bool = False) -> OwnTask:
    """Make a task of your own known to `dst` in this process, by the name in its config type; also a decorator.

    A class of the same name in the same module is the same one made anew, as by a notebook's cell, and takes its place;
    another class only with `replace`, and never that of one of the laboratory's own tasks.

    What it lacks is said here; what it gives is held against what it promises when it is built, at every step and at
    every evaluation (`dst_lab.fleet.contract`)."""
    check_type(task)
    name, known = task.config_type.task, TASKS.get(task.config_type.task, task)
    if _place(known) != _place(task) and (name in BUILT_IN or not replace):  # the same one, made anew, may
        how = "give yours another name" if name in BUILT_IN else HOW
        raise ValueError(f"there is a task called {name!r} already, {_place(known)}, now {_place(task)}: {how}")
    types = get_type_hints(task.config_type)  # where annotations are kept as text
    for spec in fields(task.config_type):
        spec.type = types[spec.name]
    check_fields(task.config_type)
    TASKS[name], CONFIGS[name] = task, task.config_type
    return task


def _place(task: type[Task]) -> str:
    return f"{task.__module__}.{task.__qualname__}"


__all__ = [
    "TASKS",
    "BiasVariance",
    "CategoricalAutoencoder",
    "CategoricalVAE",
    "CodebookVAE",
    "LogicGates",
    "Polynomial",
    "StochasticBinary",
    "register",
]
