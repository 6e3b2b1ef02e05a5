"""What is trained, one file each."""

from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from dst_lab.cards import HOW
from dst_lab.fleet.contract import ContractError, check_fields, check_type
from dst_lab.fleet.task import Task
from dst_lab.runs import BUILT_IN, CONFIGS, Registry

OwnTask = TypeVar("OwnTask", bound=type[Task])
TASKS: Registry[type[Task]] = Registry()


def register(task: OwnTask, *, replace: bool = False) -> OwnTask:
    """Make a task of your own known to `dst` in this process, by the name in its config type; also a decorator.

    A class of the same name in the same module takes the place of the one before, as when a notebook's cell is run
    again; another class only with `replace`, and never that of one of the laboratory's own tasks.

    What it lacks is said here; what it gives is held against what it promises when it is built, at every step and at
    every evaluation (`dst_lab.fleet.contract`)."""
    given: Any = task
    if not (isinstance(given, type) and issubclass(given, Task)):
        raise ContractError(f"a task is a class derived from dst_lab.fleet.task.Task, got {task!r}")
    check_type(task)
    name, place = task.config_type.task, _place(task)
    if name in BUILT_IN:
        if task.__module__ != BUILT_IN[name]:
            known = BUILT_IN[name]
            raise ValueError(f"there is a task called {name!r} already, {known}, now {place}: give yours another name")
    elif (known := _place(TASKS.get(name, task))) != place and not replace:  # the same one, made again, may
        raise ValueError(f"there is a task called {name!r} already, {known}, now {place}: {HOW}")
    types = get_type_hints(task.config_type)  # where annotations are kept as text
    for spec in fields(task.config_type):
        spec.type = types[spec.name]
    check_fields(task.config_type)
    TASKS[name], CONFIGS[name] = task, task.config_type
    return task


def _place(task: type[Task]) -> str:
    return f"{task.__module__}.{task.__qualname__}"


__all__ = ["TASKS", "register"]
